"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from shardmill.infra.errors import ShardmillError, UsageError
from shardmill.infra.near_names import near_miss
from shardmill.infra.storage.locations import default_root

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog

T = TypeVar("T")

_NEWEST = 20  # versions that are offered


def datasets(incomplete: str) -> list[str]:
    """The names of the datasets in the default folder that begin so."""
    return [name for name in _asked(lambda catalog: catalog.datasets()) if name.startswith(incomplete)]


def references(incomplete: str) -> list[str]:
    """Names of datasets; after ``@`` the newest versions of one."""
    name, at, number = incomplete.partition("@")
    if not at:
        return datasets(incomplete)
    newest = _asked(lambda catalog: catalog.versions(name))[: -_NEWEST - 1 : -1]
    return [f"{name}@{version}" for version in newest if str(version).startswith(number)]


def _asked(question: Callable[[Catalog], list[T]]) -> list[T]:
    """The answer of the catalog in the default folder; none on an error, which a completion cannot tell."""
    from shardmill.infra.dataset.catalog import Catalog

    try:
        return question(Catalog(default_root()))
    except ShardmillError:
        return []


def settings(incomplete: str) -> list[str]:
    """The keys of the settings of prepare and train with this beginning, up to the ``=``."""
    from shardmill.flows.flow_runs.jobs import models_of_runs
    from shardmill.infra.settings import settings_of

    found = set()
    for section, model in models_of_runs().items():
        for setting in settings_of(model):
            found |= {f"{setting.key}=", f"{section}.{setting.key}="}
    return sorted(key for key in found if key.startswith(incomplete))


Root = Annotated[
    str | None,
    typer.Option(
        "--root", metavar="DIR", help="Folder of the datasets [default: $SHARDMILL_ROOT or ./datasets]"
    ),
]
Runs = Annotated[
    str | None,
    typer.Option(
        "--runs", metavar="DIR", help="Folder of the training runs [default: $SHARDMILL_RUNS or ./runs]"
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE.toml", help="Settings, in the tables [prepare] and [train]"),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="Settings to begin with: clothing-from-scratch-cpu, finetune or imagenet-like",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="One setting, as KEY=VALUE; may be repeated. shardmill settings lists and searches them",
        autocompletion=settings,
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="all|one|N|cpu:N",
        help="GPUs to train on; cpu:N splits the CPU instead [default: all]",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers", metavar="N|MIN..MAX", help="Train with supervised processes, one a device, that restart"
    ),
]
Launcher = Annotated[
    str | None,
    typer.Option(
        "--launcher",
        metavar="local|ray|slurm|kubernetes",
        help="Who places the ranks of --workers on machines [default: local]",
    ),
]
Framework = Annotated[
    str | None,
    typer.Option(
        "--framework",
        metavar="tensorflow|torch",
        help="What trains; torch needs shardmill[torch] [default: tensorflow]",
    ),
]
Now = Annotated[
    bool,
    typer.Option(
        "--now", envvar="SHARDMILL_NOW", help="Do not wait until another job of this machine has ended"
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of standard output")
]
Dataset = Annotated[
    str,
    typer.Option("--dataset", metavar="NAME", help="Name of the dataset", autocompletion=datasets),
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]",
        help="A dataset; its newest version by default",
        autocompletion=references,
    ),
]
SignedRef = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME[@VERSION]",
        help="A dataset; its newest version by default",
        autocompletion=references,
        show_default=False,
    ),
]
SignedRun = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="Instead of a dataset: the exports of this training run"),
]
SigningKeyFile = Annotated[
    str | None,
    typer.Option("--key", metavar="FILE", help="Sign the new version with this private key (a PEM file)"),
]
ViewRefs = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME[@VERSION][?QUERY]...",
        help="A dataset or several, the newest version by default; with a query, only the records that "
        "fulfil it; behind 'train +=' in the train split alone",
        autocompletion=references,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="W,W,...",
        help="The share of each of several datasets in a step (data.mixture_weights)",
    ),
]
ViewRef = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION][?QUERY]",
        help="A dataset, its newest version by default; with a query, only the records that fulfil it",
        autocompletion=references,
    ),
]
Subject = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]|RUN",
        help="A dataset, its newest version by default; or a training run",
        autocompletion=references,
    ),
]
ShownSubject = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION][?QUERY]|RUN",
        help="A dataset, its newest version by default; with a query, only the records that fulfil it; or a "
        "training run: its name, its folder, or an alias such as photos@production",
        autocompletion=references,
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A training run: its name or as much of it as no other has, its folder, or NAME@ALIAS",
    ),
]
_SPLITS = ("train", "validation", "test")
_SPLITS_ALSO_CALLED = {"training": "train", "testing": "test", "val": "validation", "valid": "validation"}


def _split_named(text: str) -> str:
    name = _SPLITS_ALSO_CALLED.get(text.lower(), text)
    if name not in _SPLITS:
        raise UsageError(f"--split {text}: there is no such split", near_miss(name, _SPLITS))
    return name


Split = Annotated[
    str,
    typer.Option("--split", metavar="SPLIT", help="train, validation or test", callback=_split_named),
]
Runner = Annotated[
    str | None,
    typer.Option(
        "--runner",
        metavar="embedded|flink|prism|portable",
        help="Where the Beam jobs of prepare run [default: embedded]",
    ),
]
FlinkMaster = Annotated[
    str | None,
    typer.Option(
        "--flink-master",
        metavar="HOST:PORT",
        help="A Flink cluster to prepare on: REST address of its JobManager",
    ),
]
SourceFolder = Annotated[
    str, typer.Argument(metavar="SOURCE", help="Folder of images, one folder a class, or a URI")
]
SourceKind = Annotated[
    str | None,
    typer.Option(
        "--source-kind",
        metavar="auto|KIND",
        help="Kind of source, listed below; auto to have it recognised [default: image_folder]",
    ),
]
LabelEdits = Annotated[
    str | None,
    typer.Option(
        "--label-edits",
        metavar="FILE.csv",
        help="Corrected classes of single images: a label-errors.csv in which you decided",
    ),
]
AsIs = Annotated[
    bool,
    typer.Option(
        "--as-is",
        help="Take over a dataset of TensorFlow Datasets or WebDataset: recognise it, and copy its images "
        "instead of encoding them again",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the expected classes, splits, shards, disk space and time; write nothing"
    ),
]
Apply = Annotated[
    bool,
    typer.Option("--apply/--dry-run", help="Do it; without --apply, only print what would be done"),
]
FailureBudget = Annotated[
    float | None,
    typer.Option(
        "--failure-budget",
        metavar="FRACTION",
        help="Share of inputs that may be quarantined [default: 0.01]",
    ),
]


def check_one_subject(dataset: str | None, run: str | None) -> None:
    """Check that a command about signatures is given either a dataset or a run.

    Raises:
        UsageError: it is given both or none.
    """
    if (dataset is None) == (run is None):
        raise UsageError("give either a dataset or a run", "NAME[@VERSION], or --run RUN")
