"""Print the description of a version as MLCommons Croissant."""

from __future__ import annotations

from shardmill.infra.dataset.croissant import croissant_json, terms_of
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError


def print_croissant(opened: DatasetVersion) -> None:
    """Print the JSON-LD on standard output.

    Raises:
        UsageError: it is a view.
    """
    if opened.view is not None:
        whole = f"{opened.name}@{opened.version}"
        raise UsageError(f"{opened.ref} is a view, and only versions are described", f"show {whole}")
    print(croissant_json(opened.manifest, terms_of(opened.storage, opened.manifest)).decode("ascii"), end="")
