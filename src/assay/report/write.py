"""Write the report of a run or an experiment: one page that works offline, and its pictures as PNG."""

from __future__ import annotations

from pathlib import Path

from assay.records.run_folder import write_text
from assay.report.load import Experiment, load
from assay.report.page import experiment_page
from assay.report.pictures import page_specs, picture_specs, write_pictures
from assay.report.samples import reader_data


def write_report(root: Path) -> Path:
    """Write ``report.html`` and ``report/*.png`` in ``root``, a run's or an experiment's folder.

    Returns:
        The path of the page.

    Raises:
        BadInput: ``root`` is no such folder, or nothing was evaluated yet.
    """
    return write_loaded(load(Path(root)))


def write_loaded(experiment: Experiment) -> Path:
    """Write the report of an experiment that is read already; see :func:`write_report`."""
    page = experiment_page(experiment, page_specs(experiment), reader_data(experiment.arms))
    write_pictures(picture_specs(experiment), experiment.root / "report")
    path = experiment.root / "report.html"
    write_text(path, page)
    return path
