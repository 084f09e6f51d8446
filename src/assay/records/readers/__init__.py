"""One reader for every log: a path goes in, a :class:`assay.records.run_record.RunRecord` comes out."""

from assay.records.readers.folder import read_run

__all__ = ["read_run"]
