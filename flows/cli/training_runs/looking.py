"""runs: list the training runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import runs_folder, runs_location
from shardmill.infra import progress
from shardmill.infra.errors import CorruptDataError, ShardmillError, UsageError
from shardmill.infra.html.page import differing_settings
from shardmill.infra.near_names import near_miss
from shardmill.infra.storage.locations import public_location
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.results.run_files.rank_balance import BALANCE_FILE, read_balance

if TYPE_CHECKING:
    from shardmill.training.results.run_files.run_folder import RunFolder

_COLUMNS = ("model.name", "run.epochs")  # have columns of their own in a list of runs
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


def runs(runs: options.Runs = None, json_output: options.Json = False) -> None:
    """List the training runs.

    Examples:
      shardmill runs
      shardmill runs --runs /data/runs --json
    """
    from shardmill.training.results.run_files.run_folder import list_runs

    folder = runs_folder(runs)
    with shown_to_people():
        found = [
            {**_described(run), "settings": settings} for run, settings in _with_settings(list_runs(folder))
        ]
    if json_output:
        output.print_json({"runs_dir": str(folder), "runs": found})
    elif not found:
        place = public_location(runs_location(runs))
        output.say(f"No training runs under {place}", "Make one: shardmill train NAME")
    else:
        columns = ["run", "dataset", "model", "state", "when", "epochs", "on test", "settings"]
        rows = [
            [run["run"], *_row(run).values(), " ".join(f"{key}={it}" for key, it in run["settings"].items())]
            for run in found
        ]
        output.print_table("", columns, rows)


def whole_settings(run: RunFolder) -> dict[str, Any]:
    """The settings of a run, with the defaults of those that its release did not have."""
    from shardmill.training.config import TrainConfig

    found = run.config()
    try:
        return TrainConfig.model_validate(found).model_dump(mode="json")
    except (ValidationError, ShardmillError):  # written by a release with other settings
        return found


def _settings_if_sound(run: RunFolder) -> dict[str, Any] | None:
    """The settings of a run; None, with a warning, if their file is damaged."""
    try:
        return whole_settings(run)
    except CorruptDataError as error:
        progress.log(f"the settings of {run.name} are left out: {error}", level="warning")
        return None


def _with_settings(runs: Sequence[RunFolder]) -> Iterator[tuple[RunFolder, dict[str, str]]]:
    """Yield each run with the settings in which it differs from other runs on the same dataset."""
    places: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault(run.dataset_name, []).append(place)
    settings: dict[int, dict[str, str]] = {}
    for of_dataset in places.values():
        known = {
            place: found for place in of_dataset if (found := _settings_if_sound(runs[place])) is not None
        }
        differing = differing_settings(*known.values())
        for at, place in enumerate(known):
            settings[place] = {name: it[at] for name, it in differing.items() if name not in _COLUMNS}
    yield from ((run, settings.get(place, {})) for place, run in enumerate(runs))


def _row(run: dict[str, Any]) -> dict[str, object]:
    from shardmill.training.metrics.figures import FIGURES

    figure = run["test_figure"] or {}
    return {
        **{name: run[name] for name in ("dataset", "model", "state")},
        "when": run["changed_at"][:16].replace("T", " "),
        "epochs": f"{run['epochs_done']} of {run['epochs']}",
        "on test": "".join(FIGURES[name].precise(value) for name, value in figure.items()),
    }


def _described(run: RunFolder) -> dict[str, Any]:
    figure = run.test_figure
    return {
        "run": run.name,
        "dataset": run.dataset,
        "model": run.model,
        "state": "unfinished" if run.result is None else "finished",
        "changed_at": run.changed_at.astimezone().isoformat(timespec="seconds"),
        "epochs_done": run.epochs_done,
        "epochs": run.epochs_wanted,
        "task": run.task,
        "test_figure": None if figure is None else dict([figure]),
        "test_accuracy": figure[1] if figure is not None and figure[0] == "accuracy" else None,
    }


def show_run(run: RunFolder, json_output: bool) -> None:
    """Print the settings and results of a run, and how evenly its ranks worked, if it has several."""
    described = _described(run)
    balance = read_balance(run.path) if (run.path / BALANCE_FILE).is_file() else None
    if json_output:
        ranks = {} if balance is None else {**balance.to_json(), "class_counts": balance.class_counts()}
        output.print_json({**described, "settings": run.config(), **ranks})
        return
    facts = {**_row(described), "folder": run.path}
    output.say(f"{run.name}:", *(f"  {name + ':':<9} {value}" for name, value in facts.items() if value))
    if balance is None:
        return
    columns, rows = balance.table()
    output.print_table(f"ranks in epoch {balance.epoch}", columns, [list(row) for row in rows])
    for warning in balance.warnings:
        output.note(f"warning: {warning}")
