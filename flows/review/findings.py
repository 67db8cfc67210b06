"""What a review shows of a version, reason by reason. A further one is a function in ``REASONS``."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import SAME_BYTES_ACROSS_SPLITS
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import whole_versions
from shardmill.infra.edited_csv import edited_rows
from shardmill.infra.errors import DataError, ShardmillError
from shardmill.infra.format.contract import QUARANTINED
from shardmill.infra.format.known_features import QUALITY_FLAGS, QualityFlag
from shardmill.infra.format.quality import QUALITY_COLUMNS, flagged
from shardmill.infra.readable import counted, first_of
from shardmill.training.results.predictions.file import (
    DATA_SET,
    has_one_label,
    predictions_file,
    probabilities_of,
    read_classes,
    read_predictions,
)
from shardmill.training.results.predictions.label_errors.found import LABEL_ERRORS_FILE, OUT_OF_SAMPLE
from shardmill.training.results.run_files.run_folder import is_run, read_run

LEAST_SURE = 500  # records of a run that are shown for this reason


@dataclass(frozen=True, slots=True)
class Finding:
    """Why one record is in a review.

    Attributes:
        record: id of its content.
        text: why, as people read it.
        score: among findings of one reason the highest come first.
        label: the class that the record must have for this to hold; None: any.
        suggested: the class that it may have instead; None: none is suggested.
        run: the run that says so; "" if none does.
        uri: its source, of inputs that are no records; "" of records.
    """

    record: str
    text: str
    score: float = 0.0
    label: str | None = None
    suggested: str | None = None
    run: str = ""
    uri: str = ""


@dataclass(frozen=True)
class Reviewed:
    """A version, the folders of runs on its dataset (newest first), and what cannot be read of them."""

    version: DatasetVersion
    runs: list[Path]
    problems: list[str] = field(default_factory=list)

    @cached_property
    def near_duplicates(self) -> Sequence[Sequence[dict[str, str]]]:
        """The members of each group of near-duplicates."""
        table = self.version.manifest.near_duplicates
        groups: dict[str, list[dict[str, str]]] = {}
        if table is not None:
            columns = ["group", "record_id", "uri", "label", "split"]
            for row in self.version.table(table.path, columns).to_pylist():
                groups.setdefault(row["group"], []).append(row)
        return list(groups.values())


def runs_of(folder: Path, dataset: str) -> list[Path]:
    """Return the folders in a folder of runs that tell something of a dataset, the newest first."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError, ShardmillError):
                changed = [file.stat().st_mtime_ns for file in _files(path) if file.is_file()]
                if changed and _is_of(path, dataset):
                    found.append((max(changed), path))
    return [path for _, path in sorted(found, reverse=True)]


def stamp_of(runs: Sequence[Path]) -> tuple[object, ...]:
    """Return something that changes when files of these runs do."""
    return tuple((file.name, *_changed(file)) for run in runs for file in (run, *_files(run)))


def _files(run: Path) -> list[Path]:
    return [run / LABEL_ERRORS_FILE, *(run / predictions_file(name) for name in OUT_OF_SAMPLE)]


def _changed(file: Path) -> tuple[int, ...]:
    with suppress(OSError):
        found = file.stat()
        return found.st_mtime_ns, found.st_size
    return ()


def _is_of(path: Path, dataset: str) -> bool:
    if is_run(path):
        return any(ref.rpartition("@")[0] == dataset for ref in whole_versions(read_run(path).dataset))
    # As `shardmill label-errors` names its folder.
    return re.fullmatch(rf"{re.escape(dataset)}-v\d+-label-errors-.+", path.name) is not None


def _label_errors(reviewed: Reviewed) -> Iterator[Finding]:
    is_class = reviewed.version.manifest.label_kind == "class"
    for run in reviewed.runs:
        for row, score in _rows_of(run, reviewed):
            given, suggested = row["given_label"], row["suggested_label"]
            if is_class:
                text = f"the model says {suggested} (by {score:.2f})"
                yield Finding(row["id"], text, score, given, suggested, run.name)
            else:
                text = f"given {given}; the model: {suggested}"
                yield Finding(row["id"], text, score, run=run.name)


def _rows_of(run: Path, reviewed: Reviewed) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the rows of a list of label errors, which a person may have edited, with their scores."""
    name = f"{run.name}/{LABEL_ERRORS_FILE}"
    skipped: list[DataError] = []
    try:
        data = (run / LABEL_ERRORS_FILE).read_bytes()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            reviewed.problems.append(f"{name} cannot be read: {error.strerror}")
        return
    try:
        for line, row in edited_rows(data, name, _check_header, skipped):
            if row.get(DATA_SET, "").partition("@")[0] not in ("", reviewed.version.name):
                continue
            score = _number(row["score"])
            if not re.fullmatch("[0-9a-f]{16}", row["id"]) or score is None:
                place = f"line {line:,} of {name}"
                skipped.append(
                    DataError(f"{place} has the id {row['id']!r} and the score {row['score']!r}", "")
                )
                continue
            yield row, score
    except DataError as error:
        reviewed.problems.append(f"{error.message}: {error.remedy}")
    if skipped:
        more = "" if len(skipped) == 1 else f", and {counted(len(skipped) - 1, 'further row')}"
        reviewed.problems.append(f"not read: {skipped[0].message}{more}")


def _check_header(name: str, columns: Sequence[str]) -> None:
    lacking = sorted({"id", "given_label", "suggested_label", "score"} - set(columns))
    if lacking:
        raise DataError(f"{name} has no column {lacking[0]!r}", "find the label errors of the run again")


def _number(text: str) -> float | None:
    """Return a number that has a point, or the comma of a spreadsheet; None: it is none."""
    with suppress(ValueError):
        value = float(text.replace(",", "."))
        return value if math.isfinite(value) else None
    return None


def _same_bytes(reviewed: Reviewed) -> Iterator[Finding]:
    for conflict in reviewed.version.manifest.label_conflicts:
        others = [f"{label} ({uri})" for label, uri in zip(conflict.labels, conflict.uris, strict=False)]
        yield Finding(conflict.sha256[:16], f"the same file has several labels: {first_of(others, 4)}")


def _same_look(reviewed: Reviewed) -> Iterator[Finding]:
    if reviewed.version.manifest.label_kind != "class":
        return
    for members in reviewed.near_duplicates:
        if len({row["label"] for row in members}) > 1:
            for row in members:
                others = [f"{each['label']} ({each['uri']})" for each in members if each is not row]
                text = f"looks like others with another label: {first_of(others, 3)}"
                yield Finding(row["record_id"], text, 1 / len(members), row["label"])


def _leaks(reviewed: Reviewed) -> Iterator[Finding]:
    for members in reviewed.near_duplicates:
        if len({row["split"] for row in members if row["split"]}) > 1:
            for row in members:
                others = [f"{each['uri']} in {each['split']}" for each in members if each is not row]
                yield Finding(row["record_id"], f"looks like {first_of(others, 3)}", 1 / len(members))
    if reviewed.version.manifest.cross_split_duplicates:
        is_crossing = pc.equal(pc.field("reason"), SAME_BYTES_ACROSS_SPLITS)
        for row in _inputs(reviewed.version, is_crossing):
            yield Finding(row["record_id"], f"the source has the same file in another split: {row['uri']}", 2)


def _quarantine(reviewed: Reviewed) -> Iterator[Finding]:
    for row in quarantined(reviewed.version):
        yield Finding(row["sha256"][:16], row["message"] or row["reason"], uri=row["uri"])


def quarantined(version: DatasetVersion) -> Iterator[dict[str, str]]:
    """Yield the inputs of a version that are in quarantine and whose content is known."""
    if version.manifest.accounting.num_quarantined:
        for row in _inputs(version, pc.equal(pc.field("outcome"), QUARANTINED)):
            if row["sha256"]:
                yield row


def _quality(reviewed: Reviewed) -> Iterator[Finding]:
    limits = reviewed.version.manifest.quality
    for shard in reviewed.version.manifest.shards if limits else ():
        rows = reviewed.version.rows(shard, ["id", *QUALITY_COLUMNS])
        found: dict[int, list[QualityFlag]] = {}
        for name, bad in flagged(rows, limits).items():
            for row in np.flatnonzero(bad).tolist():
                found.setdefault(row, []).append(cast(QualityFlag, name))
        for row, names in found.items():
            text = "; ".join(f"{name.replace('_', ' ')}: {QUALITY_FLAGS[name]}" for name in names)
            yield Finding(rows["id"][row].as_py(), text, float(len(names)))


def _inputs(version: DatasetVersion, condition: pc.Expression) -> Iterator[dict[str, str]]:
    columns = ["uri", "sha256", "outcome", "reason", "message", "record_id"]
    for part in version.manifest.inputs:
        yield from version.table(part.path, columns).filter(condition).to_pylist()


def _unsure(reviewed: Reviewed) -> Iterator[Finding]:
    """Yield the records about which the newest run with probabilities is least sure."""
    for run in reviewed.runs:
        found: list[tuple[float, str, str, str]] = []
        for split in OUT_OF_SAMPLE:
            with suppress(ShardmillError, OSError):
                found = heapq.nsmallest(
                    LEAST_SURE, [*found, *_least_sure(run / predictions_file(split), reviewed.version.name)]
                )
        for sure, record, suggested, said in found:
            text = f"the model is not sure: {said}"
            yield Finding(record, text, 1 - sure, None, suggested, run.name)
        if found:
            return


def _least_sure(path: Path, dataset: str) -> Iterator[tuple[float, str, str, str]]:
    """Yield (highest probability, record, its class, the two likeliest in words) of candidates of a split."""
    if not path.is_file() or not has_one_label(path):
        return
    classes = read_classes(path)
    for part in read_predictions(path, ["id", "probabilities", DATA_SET]):
        rows = part
        if DATA_SET in part.column_names:
            named = pc.unique(part[DATA_SET]).to_pylist()
            own = [name for name in named if name.partition("@")[0] == dataset]
            rows = part.filter(pc.is_in(part[DATA_SET], pa.array(own, pa.string())))
        table = probabilities_of(rows)
        highest = table.max(axis=1)
        for row in np.argsort(highest, kind="stable")[:LEAST_SURE].tolist():
            best = np.argsort(-table[row], kind="stable")[:2].tolist()
            said = ", ".join(f"{classes[one]} {table[row, one]:.2f}" for one in best)
            yield float(highest[row]), rows["id"][row].as_py(), classes[best[0]], said


@dataclass(frozen=True)
class Reason:
    """A reason why records are in a review: its name for addresses, words for people, and its findings."""

    name: str
    words: str
    find: Callable[[Reviewed], Iterator[Finding]]


# The most important first.
REASONS: Final = (
    Reason("label-error", "likely label errors", _label_errors),
    Reason("same-file", "same file, several labels", _same_bytes),
    Reason("same-look", "same look, several labels", _same_look),
    Reason("quality", "quality flags", _quality),
    Reason("quarantine", "quarantine", _quarantine),
    Reason("leak", "leaks between splits", _leaks),
    Reason("unsure", "lowest confidence", _unsure),
)
