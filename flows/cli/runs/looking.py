"""runs, compare, and show of a run: list training runs, and look at one or two of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at, runs_folder, runs_location
from shardmill.flows.cli.runs.using import evaluate_in_child
from shardmill.flows.parameters import root_or_default
from shardmill.infra import progress
from shardmill.infra.errors import CorruptDataError, NotFoundError, ShardmillError
from shardmill.infra.html.page import differing_settings
from shardmill.infra.storage.locations import public_location
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.figures import FIGURES, is_smaller_better
from shardmill.training.results.run_files.rank_balance import BALANCE_FILE, read_balance
from shardmill.training.results.run_files.run_folder import RunFolder, list_runs, open_run

_COLUMNS = ("model.name", "run.epochs")  # have columns of their own in a list of runs


def runs(runs: options.Runs = None, json_output: options.Json = False) -> None:
    """List the training runs.

    Examples:
      shardmill runs
      shardmill runs --runs /data/runs --json
    """
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


def _whole_settings(run: RunFolder) -> dict[str, Any]:
    """The settings of a run, with the defaults of those that its release did not have, and its plugins."""
    found, plugins = run.config(), run.identity.get("plugins")
    # Another release, or a plugin that is not here, may have written them.
    with contextlib.suppress(ValidationError, ShardmillError):
        found = TrainConfig.model_validate(found).model_dump(mode="json")
    return found if plugins is None else {**found, "plugins": plugins}


def _settings_if_sound(run: RunFolder) -> dict[str, Any] | None:
    """The settings of a run; None, with a warning, if their file is damaged."""
    try:
        return _whole_settings(run)
    except CorruptDataError as error:
        progress.log(f"the settings of {run.name} are left out: {error}", level="warning")
        return None


def _with_settings(runs: Sequence[RunFolder]) -> Iterator[tuple[RunFolder, dict[str, str]]]:
    """Yield each run, and those of its settings that differ between the runs on its dataset."""
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


Other = Annotated[str, typer.Argument(metavar="RUN", help="The run to compare with it")]
OnDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME[@VERSION]",
        help="Compare on this version; by default on the version that both were trained on",
    ),
]


def compare(
    first: options.Run,
    second: Other,
    split: options.Split = "test",
    dataset: OnDataset = None,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Compare two training runs on the same records.

    A paired bootstrap tells differences from noise. With --dataset, a run without predictions of that version
    is evaluated on it first.

    Examples:
      shardmill compare photos-v1-3f2a photos-v1-90bc
      shardmill compare photos-v1-3f2a photos-v1-90bc --split validation --json
      shardmill compare photos-v1-3f2a photos-v2-77cd --dataset photos@2
    """
    from shardmill.training.results.predictions import comparison

    folder = runs_folder(runs)
    one, other = open_run(first, folder), open_run(second, folder)
    ref = None if dataset is None else catalog_at(root).open_view(dataset).ref
    if ref is not None:
        for each in (one, other):
            _evaluate_if_missing(each, split, ref, root_or_default(root))
    found = comparison.compare(one.predictions(split, ref), other.predictions(split, ref))
    differing = differing_settings(
        {"dataset": one.dataset, **_whole_settings(one)}, {"dataset": other.dataset, **_whole_settings(other)}
    )
    if json_output:
        about = {"first": one.name, "second": other.name, "dataset": ref, "split": split}
        output.print_json({**about, "settings": differing, **found.to_json()})
        return
    rows: list[list[object]] = [
        [
            FIGURES[name].words,
            FIGURES[name].exact(each.first),
            FIGURES[name].exact(each.second),
            FIGURES[name].change(each.second - each.first),
            f"{FIGURES[name].change(each.low)} to {FIGURES[name].change(each.high)}",
            _verdict(name, each),
        ]
        for name, each in found.figures.items()
    ]
    columns = ["", "first", "second", "difference", "95 % interval", ""]
    for place, run in (("first", one), ("second", other)):
        output.say(
            f"{place + ':':<7} {run.name}  ({run.dataset}, {run.changed_at.astimezone():%Y-%m-%d %H:%M})"
        )
    if differing:
        settings = [[name, *values] for name, values in differing.items()]
        output.print_table("Settings that differ", ["setting", "first", "second"], settings)
    else:
        output.say("The same settings and the same dataset version.")
    where = split if ref is None else f"{ref}, {split}"
    output.print_table(f"{where}: {output.counted(found.num_examples, 'record')}", columns, rows)
    output.say(f"Only the first is right on {found.only_first:,}, only the second on {found.only_second:,}.")


def _evaluate_if_missing(run: RunFolder, split: str, ref: str, root: str) -> None:
    """Evaluate a run on a split of a dataset version, unless it has predictions of it."""
    try:
        run.predictions(split, ref)
    except NotFoundError:
        output.note(f"evaluating {run.name} on {ref}, {split}")
        evaluate_in_child(run, split, ref, root)


def _verdict(name: str, each: Any) -> str:
    if each.low <= 0 <= each.high:
        return "no clear difference"
    is_better = (each.low > 0) != is_smaller_better(name)
    return "the second is better" if is_better else "the first is better"
