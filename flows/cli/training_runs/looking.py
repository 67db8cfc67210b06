"""runs: list the training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import options

if TYPE_CHECKING:
    from training.results.run_files.run_folder import RunFolder

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="Folder of a training run, its name under --runs, or NAME@ALIAS")
]
Split = Annotated[str, typer.Option("--split", metavar="SPLIT", help="train, validation or test")]


def runs(runs: options.Runs = None, json_output: options.Json = False) -> None:
    """List the training runs.

    Examples:
      shardmill runs
      shardmill runs --runs /data/runs --json
    """
    from flows.cli import output
    from flows.cli.training_runs.folder import runs_folder, runs_location
    from infra.progress import shown_to_people
    from infra.storage.locations import public_location
    from training.results.run_files.run_folder import list_runs

    folder = runs_folder(runs)
    with shown_to_people():
        found = [_described(run) for run in list_runs(folder)]
    if json_output:
        output.print_json({"runs_dir": str(folder), "runs": found})
    elif not found:
        place = public_location(runs_location(runs))
        output.say(f"No training runs under {place}", "Make one: shardmill train NAME")
    else:
        output.print_table(
            "", ["run", "dataset", "model", "state", "epochs", "on test"], [_row(run) for run in found]
        )


def _row(run: dict[str, Any]) -> list[object]:
    from training.results.metrics.figures import FIGURES

    figure = run["test_figure"] or {}
    return [
        *(run[name] for name in ("run", "dataset", "model", "state")),
        f"{run['epochs_done']} of {run['epochs']}",
        "".join(FIGURES[name].precise(value) for name, value in figure.items()),
    ]


def _described(run: RunFolder) -> dict[str, Any]:
    figure = run.test_figure
    return {
        "run": run.name,
        "dataset": run.dataset,
        "model": run.model,
        "state": "unfinished" if run.result is None else "finished",
        "epochs_done": run.epochs_done,
        "epochs": run.epochs_wanted,
        "task": run.task,
        "test_figure": None if figure is None else dict([figure]),
        "test_accuracy": figure[1] if figure is not None and figure[0] == "accuracy" else None,
    }


def show_run(run: RunFolder, json_output: bool) -> None:
    """Print what a run is, and how evenly its ranks worked, if it has several."""
    from flows.cli import output
    from training.results.run_files.rank_balance import BALANCE_FILE, read_balance

    described = _described(run)
    balance = read_balance(run.path) if (run.path / BALANCE_FILE).is_file() else None
    if json_output:
        ranks = {} if balance is None else {**balance.to_json(), "class_counts": balance.class_counts()}
        output.print_json({**described, "settings": run.config(), **ranks})
        return
    names = ["dataset", "model", "state", "epochs", "on test"]
    output.say(
        f"{run.name}:",
        *(
            f"  {name + ':':<9} {value}"
            for name, value in zip(names, _row(described)[1:], strict=True)
            if value
        ),
        f"  {'folder:':<9} {run.path}",
    )
    if balance is None:
        return
    columns, rows = balance.table()
    output.print_table(f"ranks in epoch {balance.epoch}", columns, [list(row) for row in rows])
    for warning in balance.warnings:
        output.note(f"warning: {warning}")
