"""Put untrusted text into a page. Completions are written by a policy that is paid to find holes."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from assay.records.finding import jsonable

# inside a script element only these can end it or open a comment; two are line ends to old JavaScript
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_TABLE = str.maketrans(_ESCAPES)


def escape(text: object) -> str:
    """Escape text for an element or a quoted attribute."""
    return html.escape(well_formed(str(text)), quote=True)


def script_json(value: Any) -> str:
    """JSON that can stand in a script element: it can neither end the element nor open a comment."""
    return well_formed(json.dumps(jsonable(value), ensure_ascii=False, separators=(",", ":"))).translate(
        _TABLE
    )


def script_code(code: str) -> str:
    """Our own or a library's code in a script element; an end tag inside a string is broken up."""
    return re.sub(r"</(?=script)", r"<\\/", code, flags=re.IGNORECASE)


def well_formed(text: str) -> str:
    """Replace lone surrogates, which no encoding can write."""
    return text.encode("utf-8", "replace").decode("utf-8")
