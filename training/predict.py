"""``python -m shardmill.training.predict RUN PATHS…``: predict image files with the model of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra import progress as events
from shardmill.infra.codecs import Pixels
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.processes.job_command import JobParser, deliver
from shardmill.infra.processes.process import exit_at_once, num_cpus, run_main
from shardmill.infra.readable import counted, first_of
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import default_root, default_runs
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.export.model_input import View
from shardmill.training.frameworks import load
from shardmill.training.predicting.detected import DETECTED_FILES, PLACES, detected
from shardmill.training.predicting.inputs import (
    Input,
    input_of_run,
    is_folder,
    list_files,
    list_pictures,
    read_input,
)
from shardmill.training.predicting.outputs import FORMATS, Format, Output, Prediction, open_output
from shardmill.training.predicting.segmented import OVERLAY_SIDE, MaskFiles, MaskNames, mask_decisions
from shardmill.training.results.run_files.run_folder import RunFolder
from shardmill.training.run.files.stored import opened_run
from shardmill.training.tasks.registry import KINDS

_TOGETHER = 64  # files that are decoded and predicted at a time
_MASKS_TOGETHER = 8  # the model gives a probability for each class and pixel

Outputs = Mapping[str, npt.NDArray[Any]]
# images uint8 [n, S, S, C] -> outputs of the exported model: name -> [n, ...]
Model = Callable[[Pixels], Outputs]
# (paths, files, outputs of those that were decoded, threads) -> a row for each file
RowsOf = Callable[[list[Path], list[Input], Outputs | None, ThreadPoolExecutor], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class _Table:
    """Writing of the predictions of a task.

    Attributes:
        outputs: the outputs of the exported model that are needed.
        open: opens the file of predictions.
        rows_of: returns a row for each file.
        together: files that are decoded and predicted at a time.
        shown_side: see ``read_input``.
    """

    outputs: Sequence[str]
    open: Callable[[Any], Output]
    rows_of: RowsOf
    together: int = _TOGETHER
    shown_side: int = 0


def _parser() -> JobParser:
    parser = JobParser(
        "python -m shardmill.training.predict",
        "Predict image files with the exported model of a finished run.",
        "example: python -m shardmill.training.predict clothing-v1-0123456789 photos/ --out predictions.csv",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name under --runs")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="image files, or folders of them")
    parser.add_argument("--paths-from", type=Path, metavar="FILE.json", help="a JSON list of more such paths")
    parser.add_argument("--format", choices=FORMATS, default="csv", help="default: csv")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the file of predictions")
    parser.add_argument("--overlays", action="store_true", help="of masks: also write images with their mask")
    parser.add_argument("--root", default=default_root(), metavar="DIR", help="folder of the datasets")
    parser.add_argument("--runs", default=default_runs(), metavar="DIR", help="folder of the training runs")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON, as the last line")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    listed = [] if args.paths_from is None else json.loads(args.paths_from.read_bytes())
    paths = [*args.paths, *map(Path, listed)]
    with opened_run(args.run, args.runs) as run, shown_to_people():
        result = predict(run, paths, args.out, args.format, overlays=args.overlays, root=args.root)
    deliver(args, result)
    return 0


def predict(
    run: RunFolder,
    paths: Sequence[Path],
    out: Path,
    kind: Format,
    *,
    overlays: bool = False,
    root: str | Path | None = None,
) -> dict[str, Any]:
    """Predict files in the order given; the files of a folder in the order of their paths.

    A file that cannot be decoded, or a folder that cannot be listed, gets a row with the reason. Memory
    holds a batch of files at a time.

    Args:
        run: a finished run.
        paths: files and folders.
        out: the file of predictions; it appears when all are done.
        kind: its format.
        overlays: with masks, write each image with its mask laid over it too.
        root: the folder of the datasets, for runs of earlier releases; None: the default.

    Returns:
        JSON-able: the path of the file, and how many files were predicted and refused.

    Raises:
        DataError: the run is unfinished. UsageError: its task has no overlays.
        NotFoundError: the folders hold no file.
        CorruptDataError: its exported model cannot be loaded.
        StorageError: the file cannot be written.
    """
    if next(list_files(paths), None) is None:
        raise NotFoundError(f"no file in {first_of([str(path) for path in paths], 3)}", "name images")
    given = input_of_run(run, root)
    table = _table_of(run, paths, out, kind, overlays=overlays)
    # The framework loads only now, so that mistakes fail at once.
    framework = run.finished().get("framework", "tensorflow")
    model: Model = load(framework, "export").open_predictor(run.path / "export", table.outputs)
    counts, num_cut, cut = {"predicted": 0, "refused": 0}, 0, ""
    events.stage("predict", unit="files")
    with (
        Storage.at(out.absolute().parent).atomic_writer(out.name) as stream,
        ThreadPoolExecutor(num_cpus(), "decode") as threads,
    ):
        output = table.open(stream)
        files = list_pictures(paths, given.preparation.pages)
        while batch := list(islice(files, table.together)):
            inputs = list(threads.map(lambda one: read_input(one[0], given, table.shown_side, one[1]), batch))
            images = [one.seen.pixels for one in inputs if one.seen is not None]
            outputs = model(np.stack(images)) if images else None
            output.add(list(table.rows_of([path for path, _ in batch], inputs, outputs, threads)))
            further = [one.path for one in inputs if one.has_further]
            num_cut, cut = num_cut + len(further), cut or next(iter(further), "")
            refused = sum(one.seen is None for one in inputs)
            counts["refused"] += refused
            counts["predicted"] += len(inputs) - refused
            events.progress("predict", sum(counts.values()), None, unit="files")
        output.close()
    if num_cut:
        _warn_of_further(num_cut, cut)
    return {"run": run.name, "out": str(out), **counts}


def _warn_of_further(count: int, name: str) -> None:
    events.log(
        f"{counted(count, 'file')} with further pages, frames or pictures, such as {name}: only the first of "
        "each is predicted, as the dataset was prepared",
        level="warning",
    )


def _table_of(run: RunFolder, paths: Sequence[Path], out: Path, kind: Format, *, overlays: bool) -> _Table:
    """Return how the predictions of a run are written."""
    names, kind_of_task = list(run.finished()["classes"]), KINDS[run.task]
    if overlays and kind_of_task.output != "pixels":
        raise UsageError(
            f"the run {run.name} learned {run.task}, and --overlays shows masks", "leave --overlays out"
        )
    if kind_of_task.output in PLACES:
        places = PLACES[kind_of_task.output]
        return _Table(
            ("boxes", "scores", "classes"),
            lambda stream: DETECTED_FILES[kind](stream, places),
            lambda _, inputs, outputs, threads: detected(inputs, outputs, names, places),
        )
    if kind_of_task.output == "pixels":
        folders = [path for path in paths if is_folder(path)]
        files = MaskFiles(out, MaskNames(folders), len(names), overlays)
        decisions = mask_decisions(overlays=overlays)
        return _Table(
            (decisions.output,),
            lambda stream: open_output(stream, kind, decisions, names),
            lambda found, inputs, outputs, threads: files.predictions(
                zip(found, inputs, strict=True), _one(outputs, decisions.output), threads.map
            ),
            _MASKS_TOGETHER,
            OVERLAY_SIDE if overlays else 0,
        )
    decided = kind_of_task.decisions
    assert decided is not None, "a task without boxes and masks decides"
    if points := run.finished().get("keypoints"):
        names = [f"{point} {axis}" for point in points for axis in ("y", "x")]
    return _Table(
        (decided.output,),
        lambda stream: open_output(stream, kind, decided, names),
        lambda _, inputs, outputs, threads: _predicted(inputs, _one(outputs, decided.output), decided.output),
    )


def _one(outputs: Outputs | None, name: str) -> npt.NDArray[Any] | None:
    return None if outputs is None else outputs[name]


def _in_pixels(view: View, points: npt.NDArray[Any]) -> list[float]:
    """Return points of the model's input, y and x, in pixels of the upright image."""
    found: list[float] = view.points(points.reshape(-1, 2)).clip(0.0, view.upright).ravel().tolist()
    return found


def _predicted(inputs: list[Input], values: npt.NDArray[Any] | None, name: str) -> Iterator[Prediction]:
    rows = iter(() if values is None else values)
    for one in inputs:
        if one.seen is None:
            yield Prediction(one.path, (), one.reason, one.message)
        else:
            values = next(rows)
            yield Prediction(
                one.path, values.tolist() if name != "points" else _in_pixels(one.seen.view, values)
            )


if __name__ == "__main__":
    # The result is written. Exit without Python's clean-up, during which TensorFlow's threads may still run.
    exit_at_once(main())
