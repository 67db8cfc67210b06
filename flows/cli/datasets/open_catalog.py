"""Open the catalog that a command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.dataset.catalog import Catalog


def catalog_at(root: str | None) -> Catalog:
    """Return the catalog of the datasets under ``root``; None: under the default folder."""
    from flows.parameters import root_or_default
    from infra.dataset.catalog import Catalog

    return Catalog(root_or_default(root))
