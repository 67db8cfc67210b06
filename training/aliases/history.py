"""The history of an alias: numbered records, each created once, in a local folder or an object store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmill.infra import progress as events
from shardmill.infra.errors import (
    CorruptDataError,
    FormatVersionError,
    PublishConflict,
    ShardmillError,
    UsageError,
)
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.aliases import AliasName, check_trained_on
from shardmill.training.aliases.record import AliasRecord, decode_record

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


@dataclass(frozen=True, slots=True)
class AliasRecords:
    """The records of an alias that can be read, and those that cannot.

    Attributes:
        name: the alias.
        sound: oldest first.
        damaged: number of a record -> why it cannot be read.
    """

    name: AliasName
    sound: list[AliasRecord]
    damaged: Mapping[int, ShardmillError]

    def current(self) -> AliasRecord | None:
        """Return the record that gave the alias to the run that has it; None: no run has it.

        Raises:
            CorruptDataError: a damaged record may have given it to another run.
        """
        newest = self.sound[-1] if self.sound else None
        self._check_none_damaged_after(0 if newest is None else newest.number)
        holder = next((record for record in reversed(self.sound) if record.is_move), None)
        # A record says who had the alias when it was written, also after a damaged one.
        if newest is not None and not newest.is_move and newest.predecessor != (holder and holder.run):
            self._check_none_damaged_after(0 if holder is None else holder.number)
        return holder

    def before(self) -> AliasRecord | None:
        """Return the record of the run that had the alias before the one that has it now; None: none had it.

        A rollback stands for the record that it brought back: two rollbacks go back two promotions, and not
        forth again.

        Raises:
            CorruptDataError: a damaged record may have given it to another run.
        """
        moves = {record.number: record for record in self.sound if record.is_move}
        current = self.current()
        if current is None:
            return None
        holder = now = self._brought_back(moves, current.number)
        while holder.run == now.run:
            earlier = max((number for number in moves if number < holder.number), default=None)
            if moves[holder.number].predecessor != (None if earlier is None else moves[earlier].run):
                self._check_none_damaged_after(earlier or 0)
            if earlier is None:
                return None
            holder = self._brought_back(moves, earlier)
        return holder

    def _brought_back(self, moves: Mapping[int, AliasRecord], number: int) -> AliasRecord:
        """Return a record, or the one that a rollback stands for."""
        restored = moves[number].restores
        if restored is not None and restored not in moves:
            raise self._unknown(restored)
        return moves[number] if restored is None else moves[restored]

    def _check_none_damaged_after(self, number: int) -> None:
        if later := [each for each in self.damaged if each > number]:
            raise self._unknown(later[0])

    def _unknown(self, number: int) -> CorruptDataError:
        why = self.damaged[number].message if number in self.damaged else f"its record {number} is missing"
        return CorruptDataError(
            f"which run has or had {self.name} is unknown: {why}",
            "restore the file from a copy, or decide by hand: "
            f"shardmill model promote RUN --alias {self.name.alias} --reason TEXT",
        )


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

    def read(self) -> AliasRecords:
        """Return all records. A damaged one is named in a warning."""
        sound: list[AliasRecord] = []
        damaged: dict[int, ShardmillError] = {
            number: CorruptDataError(f"{self._folder.uri}/{_record_file(number)} is a folder", "remove it")
            for number in _numbers_of(self._folder.list_folders())
        }
        for number in self._numbers():
            try:
                sound.append(self._read(number))
            except ShardmillError as error:
                if not isinstance(error, CorruptDataError | FormatVersionError):
                    raise
                damaged[number] = error
        for why in damaged.values():
            events.log(f"a record of {self.name} is left out: {why}", level="warning")
        return AliasRecords(self.name, sound, damaged)

    def current(self) -> AliasRecord | None:
        """Return the record that gave the alias to the run that has it; None: no run has it.

        Raises:
            CorruptDataError: a damaged record may have given it to another run.
        """
        return self.read().current()

    def add(self, decide: Callable[[AliasRecords], AliasRecord]) -> Decision:
        """Add a record.

        Args:
            decide: makes the record from all earlier ones. It is called again when another process has added
                a record meanwhile, so that no decision rests on an old state. If it returns an earlier
                record, none is added.

        Raises:
            PublishConflict: other processes keep adding records.
        """
        for _ in range(_ATTEMPTS):
            earlier = self.read()
            number = max([0, *earlier.damaged, *(record.number for record in earlier.sound)]) + 1
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
        files = (entry.path.rpartition("/")[2] for entry in self._folder.list_files(recursive=False))
        return _numbers_of(files)

    def _read(self, number: int) -> AliasRecord:
        path = _record_file(number)
        record = decode_record(self._folder.read_bytes(path), f"{self._folder.uri}/{path}")
        return record.model_copy(update={"number": number})


def list_aliases(runs: Storage, dataset: str | None = None) -> Iterator[AliasHistory]:
    """Yield the histories of all aliases, or of those of one dataset, sorted by name.

    A folder whose name is no alias is left out, with a warning.

    Raises:
        ConfigError: the name of the dataset cannot be used.
    """
    for name in [check_trained_on(dataset)] if dataset is not None else runs.list_folders(FOLDER):
        for alias in runs.list_folders(f"{FOLDER}/{name}"):
            try:
                yield AliasHistory(runs, AliasName(name, alias))
            except UsageError as error:
                events.log(f"{runs.uri}/{FOLDER}/{name}/{alias} is left out: {error}", level="warning")


def aliases_by_run(runs: Storage, dataset: str | None = None) -> dict[str, list[str]]:
    """Return the aliases that each run has now, of one dataset or of all; runs without any are left out.

    An alias whose holder is unknown, since a record is damaged, is left out, with a warning.
    """
    found: dict[str, list[str]] = {}
    for history in list_aliases(runs, dataset):
        try:
            current = history.current()
        except CorruptDataError as error:
            events.log(str(error), level="warning")
            continue
        if current is not None:
            found.setdefault(current.run, []).append(str(history.name))
    return found


def rolled_back(records: Sequence[AliasRecord], run: str) -> AliasRecord | None:
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


def _numbers_of(names: Iterable[str]) -> list[int]:
    return sorted(int(found[1]) for name in names if (found := _RECORD_FILE.fullmatch(name)))


def _record_file(number: int) -> str:
    return f"{number:06d}.json"
