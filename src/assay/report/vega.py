"""Vega, Vega-Lite and Vega-Embed as one script, so that a page needs no network."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

from assay.records.run_folder import write_text


@cache
def vega_bundle() -> str:
    """The script, from the installed converter; bundling takes seconds, so it is kept in the user's cache."""
    import vl_convert

    kept = _cache_folder() / f"vega-{version('vl-convert-python')}.js"
    if kept.is_file():
        return kept.read_text("utf-8")
    snippet = "window.vegaEmbed = vegaEmbed;"
    bundle = vl_convert.javascript_bundle(snippet)
    code = f"(function () {{\n{bundle}\n}})();\n"  # its many short names stay out of the page's
    try:
        write_text(kept, code)
    except OSError:  # a cache that cannot be written only costs time
        return code
    return code


def _cache_folder() -> Path:
    """``ASSAY_CACHE``, or the user's cache folder."""
    given = os.environ.get("ASSAY_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay"
