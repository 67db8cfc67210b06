"""Decisions of people about records: rows that are only ever added, by any number of processes at once.

A decision names the content of a record (its id), so it holds in every later version that has the content,
under any name. Each append creates one numbered file of the dataset, which exactly one process can
(``Storage.create_if_absent``)::

    decisions/000012.json      {"format": 1, "number": 12, "decisions": [...], "checksum": "..."}

File n also repeats the rows of the files before it, back to n minus the lowest bit of n: 12 has those of 9
to 12, and 8 those of 1 to 8. So all rows are read from at most log2(n) files, and a row is written as often.
"""

from __future__ import annotations

import json
import random
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Literal, get_args

from shardmill.infra.digests import canonical_json, sha256_hex
from shardmill.infra.errors import (
    CorruptDataError,
    DataError,
    FormatVersionError,
    NotFoundError,
    PublishConflict,
)
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

Verdict = Literal["keep", "relabel", "exclude", "unsure", "undo"]
VERDICTS: Final = get_args(Verdict)
FOLDER: Final = "decisions"

_FORMAT = 1
_FILE = re.compile(r"(\d{6,})\.json")
_RECORD = re.compile(r"[0-9a-f]{16}")
_KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
LONGEST: Final = 500  # characters of a text
_ATTEMPTS = 1_000  # each conflict is a file that another process has added


_TEXTS: Final = ("key", "record", "decision", "by", "at", "was", "to", "reason", "run")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about a record.

    Attributes:
        key: chosen by whoever decides; a decision that is sent twice with one key is added once.
        record: id of the record: the first 16 hexadecimal digits of the SHA-256 of the source's bytes.
        decision: ``keep`` and ``unsure`` change nothing, ``relabel`` gives another class, ``exclude`` leaves
            the image out, and ``undo`` takes the record's decision before back.
        by: who decided.
        at: when (UTC, ISO 8601); "" until it is added.
        was: the class that the record had then; "" if it had none.
        to: the new class of ``relabel``; else "".
        reason: in the words of the person, or why the record was shown.
        run: the training run that suggested it; "" if none did.
        number: of the file that added it, from 1; 0 until then.
    """

    key: str
    record: str
    decision: Verdict
    by: str
    at: str = ""
    was: str = ""
    to: str = ""
    reason: str = ""
    run: str = ""
    number: int = 0

    def __post_init__(self) -> None:
        if type(self.number) is not int or any(type(getattr(self, name)) is not str for name in _TEXTS):
            raise DataError(f"a decision has a value of another type: {self}", "give texts")
        for name in ("by", "at", "reason", "run"):
            text = getattr(self, name)
            if len(text) > LONGEST or _CONTROL.search(text):
                raise DataError(
                    f"{name} of the decision about {self.record} is {text[:40]!r}",
                    f"give one line of at most {LONGEST} characters",
                )
        if len(self.to) > LONGEST:
            raise DataError(
                f"the new class of {self.record} is {self.to[:40]!r}…", f"give at most {LONGEST} characters"
            )
        if not _KEY.fullmatch(self.key):
            raise DataError(f"{self.key!r} is no key of a decision", "give 1 to 64 letters, digits, - or _")
        if not _RECORD.fullmatch(self.record):
            raise DataError(
                f"{self.record!r} is no record id", "give 16 hexadecimal digits, as an index has them"
            )
        if self.decision not in VERDICTS:
            raise DataError(f"{self.decision!r} is no decision", f"decide {', '.join(VERDICTS)}")
        if not self.by.strip():
            raise DataError(f"nobody decided about {self.record}", "say who in `by`")
        if bool(self.to.strip()) != (self.decision == "relabel") or any(end in self.to for end in "\r\n"):
            raise DataError(
                f"the decision {self.decision} about {self.record} has the new class {self.to!r}",
                "relabel needs a class in `to`, in one line, and no other decision has one",
            )


class Decisions:
    """All decisions about the records of a dataset; a log adds those that it reads later.

    Attributes:
        rows: oldest first.
        by_key: the same by their keys.
        current: record id -> its decision in force; a record without one, or whose only one was undone, is
            not there.
    """

    def __init__(self, rows: Iterable[Decision] = ()) -> None:
        self.rows: list[Decision] = []
        self.by_key: dict[str, Decision] = {}
        self.current: dict[str, Decision] = {}
        self._standing: dict[str, list[Decision]] = {}
        self.add(rows)

    def add(self, rows: Iterable[Decision]) -> None:
        """Add later rows."""
        for row in rows:
            self.rows.append(row)
            self.by_key[row.key] = row
            standing = self._standing.setdefault(row.record, [])
            if row.decision != "undo":
                standing.append(row)
            elif standing:
                standing.pop()
            if standing:
                self.current[row.record] = standing[-1]
            else:
                self.current.pop(row.record, None)

    @property
    def changing(self) -> dict[str, Decision]:
        """The decisions in force that change the next version: record id -> relabel or exclude, sorted."""
        return {
            name: row for name, row in sorted(self.current.items()) if row.decision in ("relabel", "exclude")
        }


@dataclass(frozen=True)
class Appended:
    """What became of decisions that were sent.

    Attributes:
        added: those that were added now, with their number and time.
        repeated: those that were there already under the same key, as they are there.
        overtaken: record id -> the decision in force, of those that were not added because another person
            had decided meanwhile; None: and had undone it.
    """

    added: Sequence[Decision]
    repeated: Sequence[Decision]
    overtaken: Mapping[str, Decision | None]


class DecisionLog:
    """The decisions of one dataset. It remembers what it has read; one thread at a time may use it."""

    def __init__(self, dataset: Storage) -> None:
        """Open the log, which need not exist yet, in the folder of a dataset."""
        self._folder = dataset.child(FOLDER)
        self._number = 0
        self._decisions = Decisions()

    def read(self) -> Decisions:
        """Return all decisions, also those that others have added meanwhile.

        Raises:
            CorruptDataError: a file is not as it was written. FormatVersionError: a later release wrote it.
        """
        newest = self._newest()
        if newest > self._number:
            parts, number = [], newest
            while number > self._number:
                rows = self._read(number)
                if rows is None:
                    log(f"{self._place(number)} is missing: its decisions are lost", level="warning")
                    number -= 1
                    continue
                parts.append([row for row in rows if row.number > self._number])
                number = _start(number)
            self._decisions.add(row for part in reversed(parts) for row in part)
            self._number = newest
        return self._decisions

    def append(self, decisions: Sequence[Decision], seen: Mapping[str, str | None] | None = None) -> Appended:
        """Add decisions, all in one file.

        Args:
            decisions: new ones. Their time and number are set here, unless an import gives a time.
            seen: record id -> key of the decision that its reviewer saw in force, None for none. A decision
                about a record that has another one by now is not added. None: all are added.

        Raises:
            DataError: a key stands for another decision already.
            PublishConflict: other processes keep adding decisions.
        """
        for attempt in range(_ATTEMPTS):
            found = self.read()
            new, repeated, overtaken = _sorted_out(decisions, found, seen)
            if not new:
                return Appended((), repeated, overtaken)
            number = self._number + 1
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            added = [replace(row, at=row.at or now, number=number) for row in new]
            since = bisect_right(found.rows, _start(number), key=attrgetter("number"))
            try:
                self._folder.create_if_absent(_file(number), _encode(number, [*found.rows[since:], *added]))
            except PublishConflict:
                time.sleep(random.uniform(0, min(0.2, 0.002 * (attempt + 1))))
                continue
            found.add(added)
            self._number = number
            return Appended(added, repeated, overtaken)
        raise PublishConflict(f"other processes keep adding decisions to {self._folder.uri}", "run again")

    def _newest(self) -> int:
        number = self._number
        if not number:
            names = (entry.path.rpartition("/")[2] for entry in self._folder.list_files(recursive=False))
            number = max(
                (int(found[1]) for name in names if (found := _FILE.fullmatch(name))), default=number
            )
        # A listing of an object store may be a few seconds old; a look at one name never is.
        # Behind a file that was removed by hand a later one counts.
        while step := next((step for step in (1, 2) if self._folder.exists(_file(number + step))), 0):
            number += step
        return number

    def _read(self, number: int) -> list[Decision] | None:
        """Return the rows of a file; None if it is missing."""
        try:
            return _decode(self._folder.read_bytes(_file(number)), number, self._place(number))
        except NotFoundError:
            return None

    def _place(self, number: int) -> str:
        return f"{self._folder.uri}/{_file(number)}"


def _sorted_out(
    decisions: Sequence[Decision], found: Decisions, seen: Mapping[str, str | None] | None
) -> tuple[list[Decision], list[Decision], dict[str, Decision | None]]:
    """Return the decisions to add, those that are there, and the records that another has decided."""
    new: dict[str, Decision] = {}
    repeated: list[Decision] = []
    overtaken: dict[str, Decision | None] = {}
    for row in decisions:
        there = found.by_key.get(row.key) or new.get(row.key)
        now = found.current.get(row.record)
        if there is not None:
            if (there.record, there.decision, there.to) != (row.record, row.decision, row.to):
                raise DataError(
                    f"the key {row.key} stands for {there.decision} of {there.record} already",
                    "give each decision a key of its own",
                )
            repeated.append(there)
        elif seen is not None and seen.get(row.record) != (now and now.key):
            overtaken[row.record] = now
        else:
            new[row.key] = row
    return list(new.values()), repeated, overtaken


def _start(number: int) -> int:
    """Return the number of the last file whose rows a file does not repeat; 0: it has all."""
    return number & (number - 1)


def _file(number: int) -> str:
    return f"{number:06d}.json"


def _encode(number: int, rows: Iterable[Decision]) -> bytes:
    document = {"decisions": [_stored(row) for row in rows], "format": _FORMAT, "number": number}
    text = canonical_json(document)
    return b'{"checksum":"%s",%s' % (sha256_hex(text).encode(), text[1:])


def _stored(row: Decision) -> dict[str, Any]:
    texts = {name: value for name in _TEXTS if (value := getattr(row, name))}
    return {**texts, "number": row.number}


def _decode(data: bytes, number: int, place: str) -> list[Decision]:
    remedy = (
        "restore the file from a copy; if there is none, remove it: decisions that no other file repeats are "
        "then lost"
    )
    try:
        document = json.loads(data)
        checksum, version = document.pop("checksum"), document["format"]
        if version != _FORMAT:
            raise FormatVersionError(
                f"{place} was written in format {version!r}; this release knows {_FORMAT}",
                "use the newer release",
            )
        if checksum != sha256_hex(canonical_json(document)) or document["number"] != number:
            raise CorruptDataError(f"{place} was altered after it was written", remedy)
        rows = [Decision(**row) for row in document["decisions"]]
    except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
        if isinstance(error, CorruptDataError | FormatVersionError):
            raise
        raise CorruptDataError(f"{place} holds no decisions: {error}", remedy) from error
    return rows
