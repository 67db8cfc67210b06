"""Decisions as files for other programs: CSV, Parquet, and the JSON of Label Studio."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.dataset.decisions import Decision, Decisions
from shardmill.infra.dataset.version import read_parquet
from shardmill.infra.digests import digest_of
from shardmill.infra.edited_csv import edited_rows
from shardmill.infra.errors import DataError, UsageError
from shardmill.infra.near_names import near_names
from shardmill.infra.strict_json import dump_json

COLUMNS: Final = (
    "record", "source_uri", "decision", "from", "to", "reason", "by", "at", "run", "key", "in_force",
)  # fmt: skip
# A label-errors.csv of a run, or a file of source.label_edits, in which a person has decided.
_OF_LABEL_EDITS: Final = {
    "data_set", "id", "source_uri", "split", "given_label", "suggested_label", "score", "decision", "label",
    "comment",
}  # fmt: skip
_DECISIONS_OF_EDITS: Final = {
    "accept": "relabel", "drop": "exclude", "keep": "keep",
    "exclude": "exclude", "unsure": "unsure", "undo": "undo",
}  # fmt: skip
_OF_TASKS: Final = ("record", "from", "reason", "run", "key", "decision", "to")
_ID: Final = re.compile(r"[0-9a-f]{16}")
KINDS: Final = (".csv", ".parquet", ".json")


def written(decisions: Decisions, sources: Mapping[str, str], kind: str) -> bytes:
    """Return all decisions as a file.

    Args:
        decisions: the decisions of a dataset.
        sources: record id -> its source in the newest version.
        kind: one of KINDS; ``.json`` is for Label Studio, and has only decisions in force.
    """
    rows = [_row(row, sources, decisions) for row in decisions.rows]
    if kind == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode("utf-8", "surrogateescape")
    if kind == ".parquet":
        fields = [(name, pa.bool_() if name == "in_force" else pa.string()) for name in COLUMNS]
        stream = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), stream)
        return stream.getvalue()
    return dump_json([_task(row) for row in rows if row["in_force"]], indent=1).encode()


def _row(row: Decision, sources: Mapping[str, str], decisions: Decisions) -> dict[str, Any]:
    in_force = decisions.current.get(row.record)
    return {
        "record": row.record, "source_uri": sources.get(row.record, ""), "decision": row.decision,
        "from": row.was, "to": row.to, "reason": row.reason, "by": row.by, "at": row.at, "run": row.run,
        "key": row.key, "in_force": in_force is not None and in_force.key == row.key,
    }  # fmt: skip


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task of Label Studio with one annotation: the choices ``label`` and ``decision``."""
    choices = {"decision": row["decision"], "label": row["to"] or row["from"]}
    result = [
        {"from_name": name, "to_name": "image", "type": "choices", "value": {"choices": [value]}}
        for name, value in choices.items()
        if value
    ]
    data = {"image": row["source_uri"], **{name: row[name] for name in _OF_TASKS}}
    annotation = {"result": result, "created_at": row["at"], "created_username": row["by"]}
    return {"data": data, "annotations": [annotation]}


@dataclass(frozen=True)
class ReadDecisions:
    """The decisions of a file, and the numbers of its rows without one, and of other data sets."""

    decisions: list[Decision]
    num_undecided: int
    num_elsewhere: int = 0


def read(
    path: Path,
    user: str,
    record_of: Callable[[str], str | None],
    there: Decisions | None = None,
    dataset: str = "",
) -> ReadDecisions:
    """Read decisions from a file of KINDS, or from a label-errors.csv in which a person has decided.

    Args:
        path: the file.
        user: who decided, where the file does not say it.
        record_of: returns the record of a source; None if there is none.
        there: the decisions before; None for none. A row without a key and a time that says what is in force
            gets the key of that decision, so it is not added again.
        dataset: rows that name another data set are left out; "" to take all.

    Raises:
        UsageError: the file is of another kind, or cannot be read.
        DataError: a row makes no sense.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise UsageError(f"{path} is no {', '.join(KINDS)}", "name a file that ends so")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a file of decisions") from error
    try:
        rows = list(_parsed(data, kind, str(path)))
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as {kind[1:]}: {error!r}", "save it again") from error
    found, num_undecided, num_elsewhere = [], 0, 0
    keys = _Keys(there or Decisions())
    for number, row in enumerate(rows, 1):
        place = f"row {number:,} of {path}"
        given = {name: value for name, value in _as_decision(row, place).items() if value}
        if dataset and row.get("data_set", "").partition("@")[0] not in ("", dataset):
            num_elsewhere += 1
            continue
        if "decision" not in given:
            num_undecided += 1
            continue
        record = given.get("record") or record_of(given.get("source_uri", ""))
        if record is None:
            named = given.get("source_uri", "")
            raise DataError(f"{place} names no record: {named!r}", "give its id as `record`")
        found.append(_decision(record, given, user, place, keys))
    return ReadDecisions(found, num_undecided, num_elsewhere)


class _Keys:
    """The keys of rows that have none: the same row that is imported again gets the same key."""

    def __init__(self, there: Decisions) -> None:
        self._current = there.current
        self._newest = {row.record: row for row in there.rows}
        self._said: dict[str, tuple[str, str, str]] = {}  # record -> decision, new class, and place of a row

    def key(self, record: str, verdict: str, to: str, by: str, at: str, place: str) -> str:
        """Return the key of a row.

        Raises:
            DataError: a row before it says otherwise, and neither tells when.
        """
        if at:
            return digest_of([record, verdict, to, by, at], length=24)
        before = self._said.setdefault(record, (verdict, to, place))
        if before[:2] != (verdict, to):
            raise DataError(
                f"{place} contradicts {before[2]} about {record}: {verdict} {to}".rstrip()
                + f", and {before[0]} {before[1]}".rstrip(),
                "remove the older row, or give the time of each as `at`",
            )
        newest = self._newest.get(record)
        now = newest if verdict == "undo" else self._current.get(record)
        if now is not None and (now.decision, now.to) == (verdict, to):
            return now.key
        # With the newest row in it: what was undone or overruled since can be decided again.
        return digest_of([record, verdict, to, by, newest.key if newest else ""], length=24)


def _decision(record: str, given: Mapping[str, str], user: str, place: str, keys: _Keys) -> Decision:
    was, to, reason, run = (given.get(name, "") for name in ("from", "to", "reason", "run"))
    by, at = given.get("by") or user, given.get("at", "")
    verdict: Any = given["decision"]
    key = given.get("key") or keys.key(record, verdict, to, by, at, place)
    try:
        return Decision(key, record, verdict, by, at, was, to, reason, run)
    except DataError as error:
        raise DataError(f"{place}: {error.message}", error.remedy) from error


def _parsed(data: bytes, kind: str, name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a file as texts."""
    rows: Iterable[Mapping[str, Any]]
    if kind == ".csv":
        rows = (row for _, row in edited_rows(data, name, lambda *_: None))
    elif kind == ".parquet":
        rows = read_parquet(data).to_pylist()
    else:
        rows = [_of_task(task) for task in json.loads(data)]
    for row in rows:
        yield {name: "" if value is None else str(value).strip() for name, value in row.items()}


def _of_task(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a task of Label Studio; its last annotation that was not cancelled counts."""
    data = task["data"]
    row = {name: data.get(name) or "" for name in ("record", "from", "reason", "run")}
    row["source_uri"] = data.get("source_uri") or data.get("image")
    done = [one for one in task.get("annotations", ()) if not one.get("was_cancelled")]
    if not done:
        return row
    named = {each["from_name"]: each["value"]["choices"] for each in done[-1]["result"]}
    wrong = {name: choices for name, choices in named.items() if len(choices) != 1}
    if wrong or not {"decision", "label"} & named.keys():
        raise ValueError(f"the annotation of {row['source_uri']} is not one choice `decision` or `label`")
    label = named.get("label", [""])[0]
    decision = named.get("decision", ["keep" if label == row["from"] else "relabel"])[0]
    if decision in ("keep", "unsure") and label not in ("", row["from"], data.get("to")):
        decision = "relabel"  # only the label was changed
    to = label if decision == "relabel" else ""
    at, who = done[-1].get("created_at"), done[-1].get("created_username") or ""
    if data.get("key"):
        if (decision, to) == (data.get("decision"), data.get("to") or ""):
            row["key"] = data["key"]
        else:
            at = ""  # that of the decision before
    return {**row, "decision": decision, "to": to, "by": str(who), "at": done[-1].get("updated_at") or at}


def _as_decision(row: Mapping[str, str], place: str) -> Mapping[str, str]:
    """Return a row with the columns of decisions; of label edits, what it means."""
    known = set(COLUMNS)
    if "record" not in row and row.keys() <= _OF_LABEL_EDITS:
        return _of_label_edit(row, place)
    for name in row:
        if name not in known:
            near = near_names(name, COLUMNS)
            raise DataError(
                f"{place} has a column {name!r}",
                f"did you mean {near[0]!r}?" if near else f"decisions have {', '.join(COLUMNS)}",
            )
    return row


def _of_label_edit(row: Mapping[str, str], place: str) -> Mapping[str, str]:
    label, decision = row.get("label", ""), row.get("decision", "").lower()
    if decision not in {"", *_DECISIONS_OF_EDITS} or (label and decision):
        raise DataError(
            f"{place} has the decision {decision!r} and the label {label!r}",
            f"give a label, or one of {', '.join(_DECISIONS_OF_EDITS)}",
        )
    if label:
        decision = "keep" if label == row.get("given_label") else "accept"
    return {
        # Spreadsheets turn some ids into numbers; the source then names the record.
        "record": row.get("id", "") if _ID.fullmatch(row.get("id", "")) or not row.get("source_uri") else "",
        "source_uri": row.get("source_uri", ""),
        "decision": _DECISIONS_OF_EDITS.get(decision, ""), "from": row.get("given_label", ""),
        "to": (label or row.get("suggested_label", "")) if decision == "accept" else "",
        "reason": row.get("comment", ""),
    }  # fmt: skip
