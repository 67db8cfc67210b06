"""The history of an alias: numbered records, each created once, in a local folder or an object store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infra.errors import PublishConflict
from infra.storage.filesystem import Storage
from training.aliases.names import AliasName
from training.aliases.record import AliasRecord, decode_record

FOLDER = "aliases"

_RECORD_FILE = re.compile(r"(\d{6,})\.json")
_ATTEMPTS = 100  # each conflict is a record that another process has added


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about an alias.

    Attributes:
        record: the record of the decision.
        is_new: it was added now; False: the same was decided before.
    """

    record: AliasRecord
    is_new: bool

    @property
    def holder(self) -> str | None:
        """The run that has the alias after the decision; None: no run has it."""
        return self.record.run if self.record.is_move else self.record.predecessor


class AliasHistory:
    """The records of one alias."""

    def __init__(self, runs: Storage, name: AliasName) -> None:
        """Open the history; it need not exist yet.

        Args:
            runs: the folder of the runs.
            name: the alias.
        """
        self.name = name
        self._folder = runs.child(FOLDER, name.dataset, name.alias)

    def records(self) -> list[AliasRecord]:
        """Return all records, oldest first.

        Raises:
            CorruptDataError: one is damaged.
        """
        return [self._read(number) for number in self._numbers()]

    def current(self) -> AliasRecord | None:
        """Return the record that gave the alias to the run that has it; None: no run has it.

        Raises:
            CorruptDataError: a record is damaged.
        """
        newest_first = (self._read(number) for number in reversed(self._numbers()))
        return next((record for record in newest_first if record.is_move), None)

    def add(self, decide: Callable[[list[AliasRecord]], AliasRecord]) -> Decision:
        """Add a record.

        Args:
            decide: makes the record from all earlier ones, oldest first. It is called again when another
                process has added a record meanwhile, so that no decision rests on an old state. If it
                returns an earlier record, none is added.

        Raises:
            PublishConflict: other processes keep adding records.
        """
        for _ in range(_ATTEMPTS):
            earlier = self.records()
            number = earlier[-1].number + 1 if earlier else 1
            decided = decide(earlier)
            if decided.number:
                return Decision(decided, is_new=False)
            record = decided.model_copy(update={"number": number})
            try:
                self._folder.create_if_absent(_record_file(number), record.encode())
            except PublishConflict:
                continue
            return Decision(record, is_new=True)
        raise PublishConflict(f"other processes keep changing the alias {self.name}", "run again")

    def _numbers(self) -> list[int]:
        names = (entry.path.rpartition("/")[2] for entry in self._folder.list_files(recursive=False))
        return sorted(int(found[1]) for name in names if (found := _RECORD_FILE.fullmatch(name)))

    def _read(self, number: int) -> AliasRecord:
        path = _record_file(number)
        record = decode_record(self._folder.read_bytes(path), f"{self._folder.uri}/{path}")
        return record.model_copy(update={"number": number})


def list_aliases(runs: Storage, dataset: str | None = None) -> Iterator[AliasHistory]:
    """Yield the histories of all aliases, or of those of one dataset, sorted by name."""
    for name in [dataset] if dataset is not None else runs.list_folders(FOLDER):
        for alias in runs.list_folders(f"{FOLDER}/{name}"):
            yield AliasHistory(runs, AliasName(name, alias))


def aliases_by_run(runs: Storage, dataset: str | None = None) -> dict[str, list[str]]:
    """Return the aliases that each run has now, of one dataset or of all; runs without any are left out."""
    found: dict[str, list[str]] = {}
    for history in list_aliases(runs, dataset):
        if (current := history.current()) is not None:
            found.setdefault(current.run, []).append(str(history.name))
    return found


def holder_before(records: list[AliasRecord]) -> AliasRecord | None:
    """Return the record of the run that had the alias before the one that has it now; None: there is none.

    A rollback stands for the record that it brought back: two rollbacks go back two promotions, and not
    forth again.

    Args:
        records: the whole history, oldest first.
    """
    moves = {record.number: record for record in records if record.is_move}
    if not moves:
        return None
    holder = now = _brought_back(moves, max(moves))
    while holder.run == now.run:
        earlier = [number for number in moves if number < holder.number]
        if not earlier:
            return None
        holder = _brought_back(moves, max(earlier))
    return holder


def _brought_back(moves: dict[int, AliasRecord], number: int) -> AliasRecord:
    """Return a record, or the one that a rollback stands for."""
    restored = moves[number].restores
    return moves[number] if restored is None else moves[restored]


def rolled_back(records: list[AliasRecord], run: str) -> AliasRecord | None:
    """Return the rollback that took the alias from a run, unless a person gave it back later.

    Args:
        records: the whole history, oldest first.
        run: name of the run.
    """
    for record in reversed([record for record in records if record.is_move]):
        if record.run == run:
            return None
        if record.action == "rolled back" and record.predecessor == run:
            return record
    return None


def _record_file(number: int) -> str:
    return f"{number:06d}.json"
