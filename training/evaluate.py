"""``python -m shardmill.training.evaluate RUN``: evaluate the best model of a run again, on any split.

On the dataset version of the run, the predictions and pictures in the run's folder are written again, with
equal content, and its report is drawn with all splits that were evaluated. On another version they go to
``evaluations/<dataset>-v<version>/`` in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.known_features import WORDS, key_points
from shardmill.infra.plugins import versions_of
from shardmill.infra.processes.job_command import JobParser, deliver
from shardmill.infra.processes.process import exit_at_once, run_main
from shardmill.infra.progress import log
from shardmill.infra.settings import validate
from shardmill.infra.storage.locations import default_root, default_runs
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.config import TrainConfig, faults_of_users, own_code
from shardmill.training.config.data import OfObjects
from shardmill.training.dataset import Dataset
from shardmill.training.frameworks import start
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.results.report.drawing import draw_run_report
from shardmill.training.results.run_files.run_folder import RunFolder
from shardmill.training.run.ending.final_evaluation import evaluate_splits
from shardmill.training.run.files.stored import opened_run
from shardmill.training.run.files.summary import key_figures
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.settings import check_classes_known


def _parser() -> JobParser:
    parser = JobParser(
        "python -m shardmill.training.evaluate",
        "Evaluate the best model of a finished training run.",
        "example: python -m shardmill.training.evaluate clothing-v1-0123456789 --split test",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run, or its name under --runs")
    parser.add_argument("--split", default="test", help="train, validation or test (default: test)")
    parser.add_argument("--dataset", metavar="NAME[@VERSION]", help="default: the version of the run")
    parser.add_argument("--root", default=default_root(), metavar="DIR", help="folder of the datasets")
    parser.add_argument("--runs", default=default_runs(), metavar="DIR", help="folder of the training runs")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, as the last line")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    with opened_run(args.run, args.runs) as run, shown_to_people():
        result = evaluate_run(run, args.root, args.split, args.dataset)
    deliver(args, result, summary)
    return 0


def evaluate_run(run: RunFolder, root: str | Path, split: str, ref: str | None = None) -> dict[str, Any]:
    """Evaluate the best model of a run on a split.

    Args:
        run: the run.
        root: the folder of the datasets.
        split: the split.
        ref: ``name`` or ``name@version`` of the dataset; None: that of the run.

    Returns:
        JSON-able: run, dataset, version, split, ``metrics``, and the paths of the predictions.

    Raises:
        DataError: the run is unfinished. NotFoundError: there is no such dataset or split.
        ConfigError: the dataset has other labels, classes or key points than the run, or one of several data
            sets lacks some.
    """
    run.finished()
    catalog = Catalog(root)
    version = catalog.open_view(run.dataset if ref is None else ref)
    trained_on = _trained_on(run, catalog, version)
    _check_classes(run, trained_on, version)
    # Nothing is trained here: what augmented, and callbacks, need not be there.
    settings = {name: table for name, table in run.config().items() if name != "augment"}
    settings["run"] = {name: value for name, value in settings["run"].items() if name != "callbacks"}
    config = validate(TrainConfig, settings, where=f"the settings of {run.name}")
    check_classes_known(version, config.data.objects)
    now = versions_of(own_code(config))
    for name, was in run.identity.get("plugins", {}).items():
        if now.get(name, was) != was:
            log(
                f"{run.name} was trained with {name} {was}; its model is built by {now[name]}",
                level="warning",
            )
    dataset = Dataset(version, config.reading)
    reader = dataset.reader(split)
    folder = run.evaluation_dir(version.ref)
    folder.mkdir(parents=True, exist_ok=True)
    with faults_of_users(config):
        # The framework loads only now, so that mistakes fail at once.
        alone = config.model_copy(update={"run": config.run.model_copy(update={"devices": "one"})})
        evaluator = start(config.run.framework, alone).open_trained(config, trained_on, run.path)
        metrics = evaluate_splits(evaluator, [reader], folder, lambda: None)[split]
    dataset.close()
    if folder == run.path:
        draw_run_report(run, root)
    return {
        "run": run.name,
        "dataset": version.name,
        "version": version.version,
        **version.describe_view(),
        "split": split,
        "metrics": metrics,
        "folder": str(folder),
    }


def _trained_on(run: RunFolder, catalog: Catalog, version: DatasetVersion) -> DatasetVersion:
    """Open the version that a run was trained on; where it is gone, one with the same classes serves.

    Raises:
        NotFoundError: it is gone, and the version to evaluate on has other classes.
    """
    try:
        return catalog.open_view(run.dataset)
    except NotFoundError:
        kinds = {kind_of(version, one).name for one in get_args(OfObjects)}
        known = run.finished().get("keypoints" if run.task == "keypoints" else "classes")
        if known != _names_in(version, run.task) or run.task not in kinds:
            raise
        return version


def _names_in(version: DatasetVersion, task: str) -> list[str]:
    """Return the names of what models of a task find in a dataset version."""
    if task != "keypoints":
        return version.manifest.label_names
    points = key_points(version.manifest.extra_features)
    return [] if points is None else list(points.names)


def _check_classes(run: RunFolder, trained_on: DatasetVersion, version: DatasetVersion) -> None:
    kinds = trained_on.manifest.label_kind, version.manifest.label_kind
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"{version.ref} has {WORDS[kinds[1]]}; the run {run.name} learned from {WORDS[kinds[0]]}",
            "evaluate on a version with the labels that the model was trained on",
        )
    known, found = _names_in(trained_on, run.task), _names_in(version, run.task)
    if known == found:
        return
    things = {"keypoints": "key points", "regression": "targets"}.get(run.task, "classes")
    missing, more = sorted(set(known) - set(found)), sorted(set(found) - set(known))
    differences = [f"it lacks {', '.join(missing[:5])}"] if missing else []
    differences += [f"it adds {', '.join(more[:5])}"] if more else []
    told = "; ".join(differences) or "another order"
    raise ConfigError(
        f"{version.ref} has other {things} than the run {run.name}: {told}",
        f"evaluate on a version with the {things} that the model was trained on",
    )


def summary(result: dict[str, Any]) -> str:
    """Summarize the result in a few lines."""
    found = {FIGURES[name]: value for name, value in result["metrics"].items() if name in FIGURES}
    width = max(len(figure.words) for figure in found)
    place = f"{reference_of(result)}, {result['split']}"
    lines = [f"{result['run']} on {place}: {result['metrics']['num_examples']:,} examples"]
    lines += [f"  {figure.words:<{width}}  {figure.exact(value)}" for figure, value in found.items()]
    of_sets = result["metrics"].get("by_data_set", {}).items()
    lines += [f"  {name}: {key_figures(own)}" for name, own in of_sets]
    return "\n".join([*lines, f"  files: {result['folder']}"])


if __name__ == "__main__":
    # The result is written. Exit without Python's clean-up, during which TensorFlow's threads may still run.
    exit_at_once(main())
