"""runs and compare: list the training runs, and compare two of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli import options

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a training run, or its name under --runs")]
Other = Annotated[str, typer.Argument(metavar="RUN", help="The run to compare with it")]
Split = Annotated[str, typer.Option("--split", help="train, validation or test")]
_WORSE_IF_HIGHER = ("loss",)


def runs(runs: options.Runs = None, json_output: options.Json = False) -> None:
    """List the training runs.

    [bold]Examples[/bold]

      shardmill runs

      shardmill runs --runs /data/runs --json
    """
    from flows.cli import output
    from flows.cli.runs.folder import runs_folder
    from training.results.record.run_folder import list_runs

    folder = runs_folder(runs)
    found = [
        {
            "run": run.name,
            "dataset": run.dataset,
            "model": run.model,
            "state": "unfinished" if run.result is None else "finished",
            "epochs_done": run.epochs_done,
            "epochs": run.epochs_wanted,
            "test_accuracy": run.test_accuracy,
        }
        for run in list_runs(folder)
    ]
    if json_output:
        output.print_json({"runs_dir": str(folder), "runs": found})
    elif not found:
        output.say(f"No training runs under {folder}", "Make one: shardmill train NAME")
    else:
        output.print_table(
            "", ["run", "dataset", "model", "state", "epochs", "test accuracy"], [_row(run) for run in found]
        )


def _row(run: dict[str, Any]) -> list[object]:
    accuracy = run["test_accuracy"]
    return [
        *(run[name] for name in ("run", "dataset", "model", "state")),
        f"{run['epochs_done']} of {run['epochs']}",
        "" if accuracy is None else f"{accuracy:.2%}",
    ]


def compare(
    first: Run,
    second: Other,
    split: Split = "test",
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Compare two training runs on the same records, with a paired bootstrap.

    [bold]Examples[/bold]

      shardmill compare photos-v1-3f2a photos-v1-90bc

      shardmill compare photos-v1-3f2a photos-v1-90bc --split validation --json
    """
    from flows.cli import output
    from flows.cli.runs.folder import runs_folder
    from training.results.predictions import comparison
    from training.results.record.run_folder import open_run

    folder = runs_folder(runs)
    one, other = open_run(first, folder), open_run(second, folder)
    found = comparison.compare(one.predictions(split), other.predictions(split))
    if json_output:
        output.print_json({"first": one.name, "second": other.name, "split": split, **found.to_json()})
        return
    rows: list[list[object]] = [
        [
            name,
            f"{each.first:.4f}",
            f"{each.second:.4f}",
            f"{each.second - each.first:+.4f}",
            f"{each.low:+.4f} to {each.high:+.4f}",
            _verdict(name, each),
        ]
        for name, each in found.figures.items()
    ]
    columns = ["", "first", "second", "difference", "95 % interval", ""]
    output.say(f"first:  {one.name}", f"second: {other.name}")
    output.print_table(f"{split}: {output.counted(found.num_examples, 'record')}", columns, rows)
    output.say(f"Only the first is right on {found.only_first:,}, only the second on {found.only_second:,}.")


def _verdict(name: str, each: Any) -> str:
    if each.low <= 0 <= each.high:
        return "no clear difference"
    is_better = (each.low > 0) != (name in _WORSE_IF_HIGHER)
    return "the second is better" if is_better else "the first is better"
