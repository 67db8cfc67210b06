"""Turn shards into a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmill.training.dataset import Dataset, open_dataset

__all__ = ["Dataset", "open_dataset"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for, so that importing a module of this package stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shardmill.training import dataset

    return getattr(dataset, name)
