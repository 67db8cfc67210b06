"""Decide whether to train again, by comparing the newest version with the version of the last training.

Each scheduled run decides anew. So a lost event or a run that died delays a training but never loses it: it
stays due until a training on the newest version has finished.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.drift.figures import DriftLimits
from shardmill.infra.dataset.drift.measuring import measure
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.readable import counted
from shardmill.infra.settings import Settings
from shardmill.training.config import TrainConfig

if TYPE_CHECKING:  # they load the libraries of images: not for a flow without conditions
    from shardmill.training.results.run_files.run_folder import RunFolder

_TRAIN = "train"
_DAY_SECONDS = 86400.0


class TrainWhen(Settings):
    """Conditions for training on a new version: one of them suffices; without any, always."""

    new_records: int | None = Field(
        default=None,
        ge=1,
        le=1 << 40,
        description="so many records of the train split are new since the last training",
    )
    new_share: float | None = Field(
        default=None, gt=0, le=1, description="such a share of the train split is new since the last training"
    )
    days: float | None = Field(
        default=None, gt=0, le=3650, description="so many days have passed since the last training"
    )
    drift: bool = Field(
        default=False,
        description="the images differ from those of the last training beyond a limit of prepare's drift",
    )


# Written with "=" too: an unquoted ">" would be taken by the shell.
_CONDITION = re.compile(r"\s*(new|share|days)\s*>?=\s*([0-9.]+)\s*")
_DRIFT = "drift"
_FIELDS = {"new": "new_records", "share": "new_share", "days": "days"}


def parse_train_when(text: str) -> TrainWhen:
    """Return the conditions of a text such as ``new=1000,days=7,drift``.

    Raises:
        UsageError: the text has another form, or a number is out of range.
    """
    found: dict[str, str | bool] = {}
    for part in text.split(","):
        if part.strip() == _DRIFT:
            found["drift"] = True
            continue
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise UsageError(
                f"--train-when {text}: {part.strip()!r} is no condition",
                "for example new=1000,share=0.1,days=7,drift; one of them suffices",
            )
        found[_FIELDS[match[1]]] = match[2]
    try:
        return TrainWhen.model_validate(found)
    except ValueError as error:
        said = "; ".join(problem["msg"] for problem in getattr(error, "errors", list)())
        raise UsageError(
            f"--train-when {text}: {said}", "for example new>=1000,share>=0.1,days>=7"
        ) from error


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a training is due.

    Attributes:
        is_due: it is.
        reason: why, or why not.
        run: name of the finished run on the newest version; None: there is none.
    """

    is_due: bool
    reason: str
    run: str | None = None


def due(ref: str, config: TrainConfig, when: TrainWhen, root: str, runs: str) -> Due:
    """Decide whether to train on a version.

    Args:
        ref: ``name`` or ``name@version`` of the dataset.
        config: the configuration of the training.
        when: the conditions.
        root: the folder of the datasets.
        runs: the folder of the runs.

    Raises:
        NotFoundError: there is no such dataset.
    """
    from shardmill.training.run.files.identity import run_name
    from shardmill.training.run.files.stored import local_runs
    from shardmill.training.train import has_finished

    version = Catalog(root).open_view(ref)
    if has_finished(version.ref, config, root=root, runs=runs):
        return Due(False, f"{version.ref} was trained on before", run_name(config, version))
    last = _last_trained(version, config, local_runs(runs))
    if last is None:
        return Due(True, f"nothing was trained on {version.name} with these settings before")
    if when == TrainWhen():
        return Due(True, f"{version.ref} was not trained on before")
    try:
        trained_on = Catalog(root).open_view(last.dataset)
    except NotFoundError:
        return Due(True, f"{last.dataset}, which {last.name} was trained on, is gone: what is new is unknown")
    new, total = _count_new(version, trained_on)
    days = (datetime.now(UTC) - last.changed_at).total_seconds() / _DAY_SECONDS
    told = f"{counted(new, 'new record')} of {total:,} and {days:.1f} days since {last.name} ({last.dataset})"
    is_met = (
        (when.new_records is not None and new >= when.new_records)
        or (when.new_share is not None and total > 0 and new / total >= when.new_share)
        or (when.days is not None and days >= when.days)
    )
    if not is_met and when.drift and (drift := _drift(trained_on, version)):
        return Due(True, f"drift since {trained_on.ref}: {drift}")
    return Due(is_met, f"{told}; wanted: {in_words(when)}")


def in_words(when: TrainWhen) -> str:
    """The conditions, as ``parse_train_when`` reads them."""
    wanted = when.model_dump(exclude_defaults=True)
    told = [f"{name}>={wanted[field]:g}" for name, field in _FIELDS.items() if field in wanted]
    return " or ".join([*told, *([_DRIFT] if when.drift else [])]) or "any new version"


def _drift(trained_on: DatasetVersion, version: DatasetVersion) -> str | None:
    """Return the first figure of a version that is beyond its limit, in words; None: none is."""
    for before, after in zip(trained_on.data_sets, version.data_sets, strict=True):
        if exceeded := measure(before, after, DriftLimits()).exceeded:
            return str(exceeded[0])
    return None


def _last_trained(version: DatasetVersion, config: TrainConfig, runs: Path) -> RunFolder | None:
    """Return the finished run on the newest of the earlier versions, with the same settings."""
    from shardmill.training.results.run_files.run_folder import list_runs
    from shardmill.training.run.files.identity import run_identity

    wanted, of = _settings(run_identity(config, version)["config"]), _series(version.ref)
    same = [
        run
        for run in list_runs(runs)
        if run.result is not None
        and _series(run.dataset) == of
        and _settings(run.identity["config"]) == wanted
    ]
    return max(same, key=lambda run: (run.dataset_version, run.changed_at), default=None)


def _series(ref: str) -> str:
    """Return what versions that follow each other have in common: their name; of several their references."""
    parsed = parse_joined(ref)
    return parsed.name if len(parsed.parts) == 1 else parsed.series


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run that do not follow from the dataset version."""
    run = {name: value for name, value in config["run"].items() if name != "epochs"}
    return {name: table for name, table in config.items() if name != "reading"} | {"run": run}


def _count_new(version: DatasetVersion, trained_on: DatasetVersion) -> tuple[int, int]:
    """Return how many records of the train split are new, and how many there are."""
    known, found = _ids(trained_on), _ids(version)
    new = pc.sum(pc.invert(pc.is_in(found, known))).as_py() or 0
    return int(new), len(found)


def _ids(version: DatasetVersion) -> pa.Array:
    columns = [version.rows(shard, ["id"])["id"] for shard in version.shards(_TRAIN)]
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()
