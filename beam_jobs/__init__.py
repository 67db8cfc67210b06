"""Raw images to balanced, sharded, compressed TFRecords: sources, image work, planning, assembling.

Runs on Apache Beam and on its own: ``python -m shardmill.beam_jobs.prepare SOURCE --dataset NAME``, or from
Python ``from shardmill.beam_jobs import prepare_arrays``. Imports neither TensorFlow nor Prefect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardmill.beam_jobs.arrays import prepare_arrays

__all__ = ["prepare_arrays"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for, so that importing a module of this package stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shardmill.beam_jobs import arrays

    return getattr(arrays, name)
