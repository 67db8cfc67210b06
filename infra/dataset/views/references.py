"""References to datasets: ``name``, ``name@3``, ``name@latest``, and views such as ``name@3?width > 800``.

What follows the question mark is a query. Percent escapes in it are decoded as in a URL (``%20`` is a blank,
``%25`` a percent sign), so a reference can be quoted for a shell or encoded for a URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from shardmill.infra.errors import UsageError


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference, cut into its parts.

    Attributes:
        name: name of the dataset.
        version: the text behind ``@``; empty: the newest version.
        query: the query of a view, decoded; None: the whole version.
    """

    name: str
    version: str = ""
    query: str | None = None

    def __str__(self) -> str:
        whole = f"{self.name}@{self.version}" if self.version else self.name
        return whole if self.query is None else f"{whole}?{self.query.replace('%', '%25')}"


def parse_reference(text: str) -> Reference:
    """Cut a reference into name, version and query.

    Raises:
        UsageError: an @ without a version, a question mark without a query, or percent escapes that are not
            UTF-8.
    """
    whole, mark, escaped = text.partition("?")
    name, at, version = whole.partition("@")
    if at and not version:
        raise UsageError(f"{text!r} has no version after the @", f"give its number, or use {name!r}")
    if not mark:
        return Reference(name, version)
    try:
        query = unquote(escaped, errors="strict").strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"the percent escapes of {text!r} are not UTF-8", "write %25 for a %") from error
    if not query:
        raise UsageError(f"{text!r} has no query after the question mark", f"give one, or use {whole!r}")
    return Reference(name, version, query)


def reference_of(result: Mapping[str, Any]) -> str:
    """Return the reference in the result of a command, made of its ``dataset``, ``version`` and ``view``."""
    query = result["view"]["query"] if "view" in result else None
    return str(Reference(result["dataset"], str(result["version"]), query))
