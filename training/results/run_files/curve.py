"""``curve.jsonl``: the figures of a training while it runs, a point a line.

Points of the train split come every few steps, at most about 2,000 in a run; those of the validation split
with each validation; those of a rank, which have ``rank`` in the place of ``split``, every few seconds. A
resumed run adds to the file, and may repeat points. Readers take the last point of a step.

Each point has ``time`` (seconds since 1970), ``step``, and figures: of the train split ``epoch``, ``loss``,
the score of the task, ``learning_rate``, ``images_per_second``, ``input_wait_fraction`` and
``memory_process_bytes``; of the validation split ``epoch`` and those of the task.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from shardmill.infra.progress import Event, subscribe
from shardmill.infra.strict_json import dump_json

CURVE_FILE = "curve.jsonl"
_POINTS = 2000  # most points of a curve in a whole run

Point = Mapping[str, Any]


@contextlib.contextmanager
def recorded_curve(run_dir: Path) -> Iterator[None]:
    """Add the figures that this process reports, or its ranks, to the curve of a run while the block runs."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / CURVE_FILE).open("a", encoding="ascii") as file:
        end = subscribe(_CurveWriter(file).take)
        try:
            yield
        finally:
            end()


class _CurveWriter:
    """Writes the points of a run that are worth a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._share = 0.0  # share of the run that is done (0 to 1)
        self._written: dict[str, float] = {}  # split or rank -> the share of its latest point

    def take(self, event: Event) -> None:
        """Write an event that is a point of the curve."""
        kind = event.get("event")
        if kind == "progress" and event["stage"] == "train" and event.get("total"):
            self._share = event["done"] / event["total"]
        elif (kind == "metrics" and "step" in event) or kind == "rank":
            series = str(event.get("split", event.get("rank")))
            if series == "validation" or self._is_far(series):
                self._written[series] = self._share
                point = {name: value for name, value in event.items() if name != "event"}
                self._file.write(dump_json(point) + "\n")
                self._file.flush()

    def _is_far(self, series: str) -> bool:
        """Return whether a series has no point near this one. The last point of a run is always written."""
        before = self._written.get(series)
        return before is None or self._share >= 1.0 or self._share - before >= 1 / _POINTS


def read_curve(run_dir: Path) -> list[dict[str, Any]]:
    """Return the points of a run so far, by step; none of a run of an earlier release.

    A line that is cut off, since its process was killed or writes it now, is left out.
    """
    path = run_dir / CURVE_FILE
    if not path.is_file():
        return []
    found: dict[tuple[Any, Any, int], dict[str, Any]] = {}
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        try:
            point = json.loads(line)
            found[point.get("split"), point.get("rank"), int(point["step"])] = point
        except (ValueError, KeyError, AttributeError, TypeError):
            continue
    return sorted(found.values(), key=lambda point: int(point["step"]))
