"""The fixture generator under a name, and a cache folder of its own for the bundled scripts."""

import importlib.util
from pathlib import Path

import pytest


def _load():
    spec = importlib.util.spec_from_file_location("report_fixtures", Path(__file__).parent / "fixtures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fixtures():
    return _load()


@pytest.fixture(scope="session")
def experiment_root(fixtures, tmp_path_factory):
    """A small experiment of three arms with its report written."""
    from assay.report import write_report

    root = fixtures.write_experiment(tmp_path_factory.mktemp("experiment") / "loophole", checkpoints=6)
    write_report(root)
    return root


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
