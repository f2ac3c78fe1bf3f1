"""Names in paths and queries: text alone, since two that are none would become one name of replaced characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from lstm_ir.serving.tensors import RequestError


def need_text(scope: Mapping[str, Any]) -> None:
    """RequestError for a connection whose path or query has bytes that are no UTF-8."""
    for what, key in (("path", "raw_path"), ("query", "query_string")):
        try:
            unquote_to_bytes(scope.get(key) or b"").decode()
        except UnicodeDecodeError:
            raise RequestError(f"the {what} has escapes that are no UTF-8") from None
