"""evaluate and predict: use the model of a finished run, in a process that loads TensorFlow."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at, runs_folder, runs_location
from shardmill.flows.cli.runs.flags import with_flags
from shardmill.flows.flow_runs.jobs import ENDINGS, evaluate_command, predict_command, train_settings
from shardmill.flows.parameters import root_or_default
from shardmill.infra.errors import DataError, NotFoundError, UsageError
from shardmill.infra.processes.children import result_of
from shardmill.infra.processes.job_command import config_arguments, python_module

if TYPE_CHECKING:
    from shardmill.training.results.run_files.run_folder import RunFolder

OtherDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset", metavar="NAME[@VERSION][?QUERY]", help="Another dataset version with the same classes"
    ),
]
Paths = Annotated[list[Path], typer.Argument(metavar="PATHS...", help="Image files, or folders of them")]
Format = Annotated[
    str, typer.Option("--format", metavar="csv|parquet|json", help="csv, parquet or json (an object a line)")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write this file; without it, csv and json are printed"),
]


Overlays = Annotated[
    bool, typer.Option("--overlays", help="Of predicted masks: also write each image with its mask")
]


def evaluate(
    run: options.Run,
    split: options.Split = "test",
    dataset: OtherDataset = None,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Evaluate the best model of a finished run again, on any split.

    Examples:
      shardmill evaluate photos-v1-3f2a
      shardmill evaluate photos-v1-3f2a --split train
      shardmill evaluate photos-v1-3f2a --dataset photos@4
    """
    from shardmill.training.evaluate import summary
    from shardmill.training.run.files.stored import opened_run

    with opened_run(run, runs_location(runs)) as found:
        found.finished()
        result = evaluate_in_child(found, split, dataset, root_or_default(root))
    output.answer(result, json_output, *summary(result).splitlines())


def evaluate_in_child(run: RunFolder, split: str, dataset: str | None, root: str) -> dict[str, Any]:
    """Evaluate a run in a process that loads TensorFlow; see ``shardmill.training.evaluate.evaluate_run``."""
    return result_of(evaluate_command(str(run.path), split, dataset, root, str(run.path.parent)))


def predict(
    run: options.Run,
    paths: Paths,
    format_name: Format = "csv",
    out: Out = None,
    overlays: Overlays = False,
    root: options.Root = None,
    runs: options.Runs = None,
    json_output: options.Json = False,
) -> None:
    """Predict image files with the exported model of a finished run.

    A file that cannot be decoded gets a row with the reason. Masks are PNG files beside the table. The exit
    status is 2 if a file that you name is not there, and 3 if no file could be predicted.

    Examples:
      shardmill predict photos-v1-3f2a new/ --out predictions.csv
      shardmill predict photos-v1-3f2a one.jpg two.png --format json
    """
    from shardmill.training.results.run_files.run_folder import open_run

    _check(format_name, out, json_output)
    if not any(path.exists() for path in paths):
        raise NotFoundError(f"{paths[0]}: no such file or folder", "name images, or folders of them")
    folder = runs_folder(runs)
    found = open_run(run, folder)
    found.finished()
    if out is None and found.task == "segmentation":
        raise UsageError(
            f"the run {found.name} predicts masks, which are files beside the table that names them",
            "name the table: --out predictions.csv",
        )
    if out is not None:
        result = _predicted(found.path, paths, format_name, out, root, overlays=overlays)
        output.answer(result, json_output, f"{_counts(result)}: {out}")
        _check_predicted(paths, result)
        return
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "predictions"
        result = _predicted(found.path, paths, format_name, made, root, overlays=overlays)
        with made.open(encoding="utf-8", newline="") as lines:
            for line in lines:
                sys.stdout.write(line)
    sys.stdout.flush()
    if result["refused"]:
        output.note(f"note: {_counts(result)}")
    _check_predicted(paths, result)


def _check_predicted(paths: list[Path], result: dict[str, Any]) -> None:
    """Check that every named file exists, and that at least one file was predicted.

    Raises:
        NotFoundError: a named file is not there. DataError: no file could be predicted.
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise NotFoundError(f"{missing[0]}{more}: no such file or folder", "see the rows with a reason")
    if not result["predicted"]:
        raise DataError("no file could be predicted", "see the reason in each row")


def _check(format_name: str, out: Path | None, json_output: bool) -> None:
    if format_name not in ("csv", "parquet", "json"):
        raise UsageError(f"--format {format_name!r} is not known", "there are: csv, parquet, json")
    known = {**ENDINGS, ".xlsx": "", ".xls": ""}  # "": a format that is not written
    meant = format_name if out is None else known.get(out.suffix.lower(), format_name)
    if meant != format_name:
        remedy = f"write --format {meant}" if meant else "csv, parquet and json are written"
        raise UsageError(f"--out {out}: the format is {format_name}", f"{remedy}, or give it another ending")
    if out is None and format_name == "parquet":
        raise UsageError("Parquet cannot be printed", "name a file with --out")
    if out is None and json_output:
        raise UsageError(
            "--json prints the counts of a file", "name the file with --out, or use --format json"
        )


def _predicted(
    run: Path, paths: list[Path], format_name: str, out: Path, root: str | None, *, overlays: bool
) -> dict[str, Any]:
    command = predict_command(run, format_name, out, root_or_default(root), overlays=overlays)
    return result_of([*command, "--", *map(str, paths)])


def _counts(result: dict[str, Any]) -> str:
    refused = f", {result['refused']:,} refused" if result["refused"] else ""
    return f"{output.counted(result['predicted'], 'file')} predicted{refused}"


Folds = Annotated[
    int, typer.Option("--folds", metavar="N", min=2, max=100, help="Number of folds, and of trainings")
]


@with_flags("train")
def label_errors(
    dataset: options.ViewRef,
    folds: Folds = 5,
    devices: options.Devices = None,
    workers: options.Workers = None,
    root: options.Root = None,
    runs: options.Runs = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """List likely label errors of the train split.

    It trains K models, each without one fold, which the model then predicts. Each fold is a training run.
    After an interruption the same command goes on where it stopped.

    Examples:
      shardmill label-errors photos
      shardmill label-errors photos@3 --folds 10 --recipe clothing-from-scratch-cpu
    """
    from shardmill.training.config import with_devices
    from shardmill.training.label_errors import summary

    settings = with_devices(train_settings(config, overrides or [], recipe), devices, workers)
    folder = root_or_default(root)
    ref = catalog_at(folder).open_view(dataset).ref
    command = python_module("shardmill.training.label_errors", ref, "--folds", str(folds))
    command += ["--root", folder, "--runs", runs_location(runs)]
    command += config_arguments(settings.model_dump_json())
    result = result_of(command)
    output.answer(result, json_output, *summary(result).splitlines())
