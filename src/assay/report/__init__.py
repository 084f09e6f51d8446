"""The one place that draws: runs, experiments and findings."""

from assay.report.write import write_report

__all__ = ["write_report"]
