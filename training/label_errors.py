"""``python -m shardmill.training.label_errors NAME[@V]``: likely label errors of train, over K folds.

K models are trained, each without one fold of the train split, and predict the examples that they have not
seen. Each is an ordinary run (``data.left_out_fold``) in a process of its own. The same command again goes on
with the fold that was interrupted, and the finished ones stay. The outcome lies in
``<runs>/<dataset>-v<version>-label-errors-<digest>/``:

    label-errors.csv          likely label errors, the likeliest first
    label-errors.html         the same with pictures
    predictions-train.parquet out-of-sample predictions of the whole train split, fold by fold
    result.json               counts, figures, and the runs of the folds
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import DataError, UsageError
from shardmill.infra.processes.children import run_child
from shardmill.infra.processes.job_command import (
    JobParser,
    config_arguments,
    deliver,
    python_module,
    settings_of,
)
from shardmill.infra.processes.process import run_main
from shardmill.infra.readable import counted
from shardmill.infra.settings import validate
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import below, default_runs, public_location
from shardmill.infra.strict_json import dump_json
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.config import ExportSettings, TrainConfig, with_devices
from shardmill.training.metrics.figures import CHOOSING, FIGURES
from shardmill.training.reading import load_table, open_records
from shardmill.training.recipes import recipe_names, recipe_path
from shardmill.training.results.predictions.figures import figures_of
from shardmill.training.results.predictions.file import (
    LEFT_OUT_FILE,
    join_predictions,
    kind_in,
    predictions_file,
)
from shardmill.training.results.predictions.label_errors import find_label_errors
from shardmill.training.results.predictions.label_errors.found import LABEL_ERRORS_FILE
from shardmill.training.results.report.page import Fold, LabelErrorsPage, write_label_errors_page
from shardmill.training.run.files.stored import is_in_store, kept_in_store
from shardmill.training.tasks.registry import LABEL_WORDS, kind_of

DEFAULT_FOLDS = 5
_TRAIN = tuple(python_module("shardmill.training.train"))
_SPLIT = "train"


def _parser() -> JobParser:
    parser = JobParser(
        "python -m shardmill.training.label_errors",
        "Find likely label errors of the train split with K models, each trained without one fold.",
        "example: python -m shardmill.training.label_errors clothing --folds 5 --set run.epochs=20",
    )
    parser.add_argument(
        "dataset", metavar="NAME[@VERSION][?QUERY]", help="dataset; the newest version by default"
    )
    parser.add_argument(
        "--folds", type=int, default=DEFAULT_FOLDS, metavar="K", help="number of folds (default: 5)"
    )
    parser.add_argument("--runs", default=default_runs(), metavar="DIR", help="folder of the training runs")
    parser.add_argument(
        "--recipe", metavar="NAME", help=f"settings to begin with: {', '.join(recipe_names())}"
    )
    parser.add_argument("--devices", metavar="all|one|N|cpu:N", help="run.devices")
    parser.add_argument("--workers", metavar="N|MIN..MAX", help="ranks.workers")
    parser.add_job_arguments("train")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    recipe = None if args.recipe is None else recipe_path(args.recipe)
    config = settings_of(args, TrainConfig, "train", recipe=recipe)
    config = with_devices(config, args.devices, args.workers)
    with shown_to_people():
        result = label_errors_over_folds(args.dataset, config, args.folds, root=args.root, runs=args.runs)
    deliver(args, result, summary)
    return 0


def label_errors_over_folds(
    ref: str, config: TrainConfig, num_folds: int, *, root: str | Path, runs: str | Path
) -> dict[str, Any]:
    """Train a model without each fold, and find likely label errors in what they predict.

    Args:
        ref: ``name`` or ``name@version``.
        config: the configuration of each training; forms of the model besides the SavedModel are left out.
        num_folds: the number of folds, K >= 2.
        root: the folder of the datasets.
        runs: folder for the runs and the outcome; one of an object store keeps copies here.

    Returns:
        JSON-able: counts, figures of the out-of-sample predictions, paths and the runs of the folds.

    Raises:
        ConfigError: the settings are wrong. NotFoundError: there is no such dataset.
        UsageError: label errors are not looked for in its labels.
        DataError: all examples have one label. Cancelled: stopped on request.
        ShardmillError: a training failed.
    """
    if config.data.left_out_fold is not None:
        raise UsageError("data.left_out_fold is set", "leave it out: this command sets it for each fold")
    version = Catalog(root).open_view(ref)
    kind = kind_of(version, config.data.objects)
    if "folds" not in kind.settings:
        raise UsageError(
            f"label errors are not looked for in {LABEL_WORDS[kind.learned]}, which {version.ref} has",
            "look at the hardest examples in the report of a run",
        )
    configs = [_without_fold(config, fold, num_folds) for fold in range(1, num_folds + 1)]
    folds = []
    for number, of_fold in enumerate(configs, 1):
        events.log(f"fold {number} of {num_folds}")
        folds.append(_train(of_fold, version, f"fold {number} of {num_folds}", root=root, runs=runs))
    names = [Path(fold["run_dir"]).name for fold in folds]
    name = f"{version.name}-v{version.version}-label-errors-{digest_of(names, length=10)}"
    if not is_in_store(runs):
        return _collected(version, folds, Path(runs), name)
    with kept_in_store(str(runs), name) as copies:  # the folds' results are there, as this machine has them
        result = _collected(version, folds, copies, name)
    return {**result, "stored_in": public_location(below(str(runs), name))}


def _without_fold(config: TrainConfig, fold: int, num_folds: int) -> TrainConfig:
    values = config.model_dump()
    values["data"] |= {"folds": num_folds, "left_out_fold": fold}
    values["export"] = ExportSettings().model_dump()
    return validate(TrainConfig, values, where="--folds")


def _train(
    config: TrainConfig, version: DatasetVersion, name: str, *, root: str | Path, runs: str | Path
) -> dict[str, Any]:
    """Train a model in a process of its own; its progress becomes that of this process."""

    def relay(event: events.Event) -> None:
        kind = event.get("event")
        if kind in ("stage", "progress"):
            events.emit({**event, "stage": f"{name}, {event['stage']}"})
        elif kind == "log":
            events.emit(event)

    command = [*_TRAIN, version.ref, "--root", str(root), "--runs", str(runs)]
    return run_child([*command, *config_arguments(config.model_dump_json())], on_event=relay).reported()


def _collected(version: DatasetVersion, folds: list[dict[str, Any]], runs: Path, name: str) -> dict[str, Any]:
    """Find the errors in the predictions of all folds, and write the outcome to the folder ``name``."""
    # A fold that was trained on another machine, or before its folder was moved, names a path of that time.
    run_dirs = [runs / Path(fold["run_dir"]).name for fold in folds]
    path = runs / name
    path.mkdir(parents=True, exist_ok=True)
    folder = Storage.at(path)
    left_out = [fold["left_out"] for fold in folds]
    join_predictions([run_dir / LEFT_OUT_FILE for run_dir in run_dirs], folder, predictions_file(_SPLIT))
    errors = find_label_errors({_SPLIT: path / predictions_file(_SPLIT)})
    if errors is None:
        raise DataError(
            f"all train examples of {version.ref} have one label", "use a dataset of two classes or more"
        )
    errors.write_csv(folder)
    figures, task = figures_of(path / predictions_file(_SPLIT)), kind_in(path / predictions_file(_SPLIT)).name
    figure = FIGURES[CHOOSING[task][0]]
    page = LabelErrorsPage(
        version.ref,
        errors,
        [(FIGURES[name].words, FIGURES[name].text(figures[name])) for name in CHOOSING[task][:2]],
        figure.words,
        [
            Fold(run_dir.name, fold["metrics"]["num_examples"], figure.text(fold["metrics"][figure.name]))
            for run_dir, fold in zip(run_dirs, left_out, strict=True)
        ],
    )
    report = write_label_errors_page(folder, page, open_records(version, load_table(version, _SPLIT)))
    result = {
        "dataset": version.name,
        "version": version.version,
        **version.describe_view(),
        "task": task,
        **errors.to_result(path / LABEL_ERRORS_FILE),
        "metrics": figures,
        "report": str(path / report),
        "predictions": str(path / predictions_file(_SPLIT)),
        "runs": list(map(str, run_dirs)),
    }
    folder.write_atomic("result.json", dump_json(result, indent=1).encode("ascii"))
    return result


def summary(result: dict[str, Any]) -> str:
    """Summarize the result in a few lines."""
    examples, folds = counted(result["num_examples"], "train example"), counted(len(result["runs"]), "fold")
    figure = FIGURES[CHOOSING[result["task"]][0]]
    known = f"  {figure.words} on unseen examples: {figure.exact(result['metrics'][figure.name])} ({folds})"
    if "withheld" in result:
        lines = [f"{reference_of(result)}: no label errors are listed for {examples}", known]
        lines.append(f"  {result['withheld']}")
    else:
        lines = [
            f"{reference_of(result)}: {result['num_likely']:,} of {examples} are likely wrong",
            f"  why:    {result['meaning']}",
            known,
            f"  list:   {result['file']}",
        ]
        if "estimated" in result:
            lines.insert(2, f"  estimated number of wrong labels: {result['estimated']:,.0f}")
    lines.append(f"  report: {result['report']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
