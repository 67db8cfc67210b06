"""``metrics.jsonl`` and ``metrics.parquet``: the figures of each epoch, one row per epoch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.json_files import read_json_lines
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json, finite

_FILE = "metrics.jsonl"
_SPLITS = ("train", "validation")


class HistoryFiles:
    """Writes both files of a run whole, so that a resumed run leaves the same ones."""

    def __init__(self, folder: Storage) -> None:
        self._folder = folder

    def write(self, history: Sequence[dict[str, Any]]) -> None:
        """Write the rows of all epochs so far: ``epoch``, ``step``, and ``<split>_<figure>``."""
        rows: list[dict[str, Any]] = finite([flat(row) for row in history])
        lines = "".join(dump_json(row) + "\n" for row in rows)
        self._folder.write_atomic(_FILE, lines.encode("ascii"))
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
        stream = io.BytesIO()
        pq.write_table(table, stream)
        self._folder.write_atomic("metrics.parquet", stream.getvalue())


def _column(values: list[Any]) -> pa.Array:
    found = pa.array(values)
    return found.cast(pa.float64()) if pa.types.is_null(found.type) else found


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return an epoch of the history with a figure's split before its name."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            found |= {f"{key}_{name}": figure for name, figure in value.items()}
        else:
            found[key] = value
    return found


def read_history(run_dir: Path) -> list[dict[str, Any]]:
    """Return the epochs of ``metrics.jsonl`` so far, the figures by split as in the result of a run.

    Raises:
        CorruptDataError: the file is damaged.
    """
    path = run_dir / _FILE
    if not path.exists():
        return []
    remedy = "train again: the next epoch writes it again"
    return [_by_split(row) for row in read_json_lines(path, dict[str, Any], remedy)]


def _by_split(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        split, _, name = key.partition("_")
        if split not in _SPLITS:
            found[key] = value
        elif value is not None:
            found.setdefault(split, {})[name] = value
    return found
