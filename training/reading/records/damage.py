"""Handle damaged records: raise an error, or up to a limit leave them out and count them.

A record that is left out keeps its row, so that shapes stay fixed: the row repeats another record of the
batch at weight 0, as padding does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from shardmill.infra import progress as events
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.readable import counted
from shardmill.training.order import StepPlan


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that was left out: its id, its shard (relative to the dataset's folder), and the error."""

    id: str
    shard: str
    message: str


class BadRecords:
    """Collects the damaged records that a process met, each once. Safe for many threads.

    A copy in another process counts for itself.
    """

    def __init__(self, limit: int = 0) -> None:
        """``limit``: records that may be left out (``reading.max_bad_records``)."""
        self.limit = limit
        self._found: dict[str, BadRecord] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[BadRecords], tuple[int]]:
        return BadRecords, (self.limit,)

    def add(self, record_id: str, shard: str, error: CorruptDataError) -> None:
        """Count a record as left out.

        Raises:
            CorruptDataError: no further record may be left out.
        """
        with self._lock:
            if record_id in self._found:
                return
            if len(self._found) >= self.limit:
                raise self._one_too_many(error) from error
            self._found[record_id] = BadRecord(record_id, shard, error.message)
            number = len(self._found)
        events.emit(
            {"event": "bad_record", "id": record_id, "shard": shard, "message": error.message}
            | {"number": number, "limit": self.limit}
        )
        events.log(f"left out ({number} of {self.limit} allowed): {error.message}", level="warning")

    def _one_too_many(self, error: CorruptDataError) -> CorruptDataError:
        if not self.limit:
            return CorruptDataError(error.message, error.remedy)
        return CorruptDataError(
            f"{error.message}; {counted(self.limit, 'damaged record')} were left out before, as "
            "reading.max_bad_records allows",
            error.remedy,
        )

    def to_result(self) -> list[dict[str, str]]:
        """Return the records that were left out, JSON-able, in the order in which they were found."""
        with self._lock:
            return [asdict(record) for record in self._found.values()]


def restore(ref: str) -> str:
    """Return the remedy for a damaged shard of the version ``ref``."""
    return (
        f"run `shardmill verify {ref}`; restore the damaged shard from a copy, or prepare the dataset again"
    )


def without_rows(plan: StepPlan, bad: Sequence[int]) -> tuple[StepPlan, int | None]:
    """Turn bad rows into padding. Return the plan, and the row that they repeat; None if all are bad.

    Args:
        plan: the plan of a step, or of a rank's slice of it.
        bad: the bad rows of the plan.
    """
    ordinals, weights = plan.ordinals.copy(), plan.weights.copy()
    donor = next((row for row in range(ordinals.size) if row not in set(bad)), None)
    rows = list(bad)
    weights[rows] = 0
    if donor is not None:
        ordinals[rows] = ordinals[donor]
    return replace(plan, ordinals=ordinals, weights=weights), donor
