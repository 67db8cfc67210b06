"""``python -m training.predict RUN PATHS…``: predict image files with the exported model of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from infra import progress as events
from infra.errors import CorruptDataError, UsageError
from infra.processes.job_command import JobParser, deliver
from infra.processes.process import exit_at_once, num_cpus, run_main
from infra.storage.filesystem import Storage
from infra.storage.locations import default_runs
from training.predicting.decisions import DECISIONS, Decisions
from training.predicting.detected import DETECTED_FILES, detected
from training.predicting.inputs import Input, list_files, read_input
from training.predicting.outputs import FORMATS, Format, Prediction, open_output
from training.results.run_files.run_folder import RunFolder, open_run

_TOGETHER = 64  # files that are decoded and predicted at a time

_TORCH_OUTPUTS = (
    "probabilities",
    "values",
)  # a model of PyTorch has one output, by the name that is asked for

# (PNGs) -> the outputs of the exported model: name -> [n, ...]
Model = Callable[[list[bytes]], Mapping[str, npt.NDArray[Any]]]


# (files, outputs of those that were decoded) -> a row for each file
RowsOf = Callable[[list[Input], Mapping[str, npt.NDArray[Any]] | None], Iterator[Any]]


class _Output(Protocol):
    """A file of predictions that is being written."""

    def add(self, rows: list[Any], /) -> None:
        """Write the rows of some files."""

    def close(self) -> None:
        """Write the end of the file."""


def _parser() -> JobParser:
    parser = JobParser(
        "python -m training.predict",
        "Predict image files with the exported model of a finished run.",
        "example: python -m training.predict clothing-v1-0123456789 photos/ --out predictions.csv",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name under --runs")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="image files, or folders of them")
    parser.add_argument("--format", choices=FORMATS, default="csv", help="default: csv")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the file of predictions")
    parser.add_argument("--runs", default=default_runs(), metavar="DIR", help="folder of the training runs")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON, as the last line")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    run = open_run(args.run, Path(args.runs))
    with events.shown_to_people():
        result = predict(run, args.paths, args.out, args.format)
    deliver(args, result)
    return 0


def predict(run: RunFolder, paths: Sequence[Path], out: Path, kind: Format) -> dict[str, Any]:
    """Predict files in the order given; the files of a folder in the order of their paths.

    A file that cannot be decoded gets a row with the reason. Memory holds a batch of files at a time.

    Args:
        run: a finished run.
        paths: files and folders.
        out: the file of predictions; it appears when all are done.
        kind: its format.

    Returns:
        JSON-able: the path of the file, and how many files were predicted and refused.

    Raises:
        DataError: the run is unfinished. UsageError: the predictions of its task do not fit into a table.
        CorruptDataError: its exported model cannot be loaded.
        StorageError: the file cannot be written.
    """
    result = run.finished()
    names, size, fit = list(result["classes"]), int(result["image_size"]), run.config()["data"].get("fit")
    opened, rows_of = _table_of(run, kind, names)
    model = _load(run)
    counts = {"predicted": 0, "refused": 0}
    events.stage("predict", unit="files")
    with (
        Storage.at(out.absolute().parent).atomic_writer(out.name) as stream,
        ThreadPoolExecutor(num_cpus(), "decode") as threads,
    ):
        output = opened(stream)
        files = list_files(paths)
        while batch := list(islice(files, _TOGETHER)):
            inputs = list(threads.map(lambda path: read_input(path, size, fit or "crop"), batch))
            images = [one.image for one in inputs if one.image is not None]
            output.add(list(rows_of(inputs, model(images) if images else None)))
            refused = sum(one.image is None for one in inputs)
            counts["refused"] += refused
            counts["predicted"] += len(inputs) - refused
            events.progress("predict", sum(counts.values()), None, unit="files")
        output.close()
    return {"run": run.name, "out": str(out), **counts}


def _table_of(run: RunFolder, kind: Format, names: list[str]) -> tuple[Callable[[Any], _Output], RowsOf]:
    """Return the function that opens the file of predictions of a run, and the one that makes its rows."""
    if run.task == "detection":
        return DETECTED_FILES[kind], lambda inputs, outputs: detected(inputs, outputs, names)
    decisions = _decisions(run)
    return (
        lambda stream: open_output(stream, kind, decisions, names),
        lambda inputs, outputs: _predicted(inputs, None if outputs is None else outputs[decisions.output]),
    )


def _predicted(inputs: list[Input], values: npt.NDArray[Any] | None) -> Iterator[Prediction]:
    rows = iter(() if values is None else values)
    for one in inputs:
        if one.image is None:
            yield Prediction(one.path, (), one.reason, one.message)
        else:
            yield Prediction(one.path, next(rows).tolist())


def _decisions(run: RunFolder) -> Decisions:
    if run.task not in DECISIONS:
        raise UsageError(
            f"the run {run.name} learned {run.task}, whose predictions do not fit into a table",
            f"load its exported model from {run.path / 'export'}",
        )
    return DECISIONS[run.task]


def _load(run: RunFolder) -> Model:
    # The framework loads only now, so that mistakes fail at once.
    folder = run.path / "export"
    if run.finished().get("framework") == "torch":
        from training.torch_loop.evaluating.trained_model import open_predictor

        channels = int(run.config()["data"]["image_channels"])
        predictor = open_predictor(folder, channels)
        return lambda images: dict.fromkeys(_TORCH_OUTPUTS, predictor(images))
    from training.ranks import tensorflow_runtime

    with tensorflow_runtime.quiet_start():
        tensorflow_runtime.start()
        import tensorflow as tf

        try:
            served = tf.saved_model.load(str(folder)).signatures["serving_default"]
        except (OSError, KeyError, tf.errors.OpError) as error:
            raise CorruptDataError(
                f"the exported model {folder} cannot be loaded: {error}", "train again with run.fresh=true"
            ) from error

    def model(images: list[bytes]) -> dict[str, npt.NDArray[Any]]:
        found = served(image_bytes=tf.constant(images))
        return {name: values.numpy() for name, values in found.items()}

    return model


if __name__ == "__main__":
    # The result is written. Exit without Python's clean-up, during which TensorFlow's threads may still run.
    exit_at_once(main())
