"""``python -m shardmill.training.train NAME[@V]``: train on a dataset. The same command again resumes.

A run lives in ``<runs>/<dataset>-v<version>-<digest of the configuration>/``:

    run.json               the configuration, the dataset version, and what the run settled when it began
    environment.json       code, packages, devices, seeds, and the whole configuration
    checkpoints/           the latest ones and the best
    logs/                  for TensorBoard
    metrics.jsonl, metrics.parquet     figures of each epoch
    curve.jsonl            figures every few steps, written while the training runs
    consumed.jsonl         with run.trace_records: the ids of the records of each step
    model.weights.h5, export/          with run.framework = "torch": model.pt, export/
    model.weights.h5.sig, export.sig   with export.signing_key: their signatures
    predictions-<split>.parquet      what the best model predicts for each record
    confusion-<split>.svg, reliability-<split>.svg, label-errors.csv       of single-label classifiers
    report.html            curves, figures, hardest examples, settings; what else the task has
    near-duplicates.parquet     of several data sets: records that look the same as one of another
    examples.json          the first of these examples, for other pages
    result.json            written last: the run is finished, and the same command returns this result
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq

from shardmill.infra import progress as events
from shardmill.infra.arguments import checked
from shardmill.infra.dataset.between import NEAR_DUPLICATES_FILE, between_in_words
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import joined_text
from shardmill.infra.errors import ConfigError, DataError, UsageError
from shardmill.infra.lineage import Lineage, LineageDataset, reported_job
from shardmill.infra.processes.job_command import JobParser, deliver, settings_of
from shardmill.infra.processes.process import exit_at_once, own_peak_rss_bytes, run_main
from shardmill.infra.processes.turns import Resource, Turn
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import below, default_runs, public_location
from shardmill.infra.whole_job import shown_to_people
from shardmill.training.config import TrainConfig, faults_of_users, with_devices
from shardmill.training.frameworks import check_installed
from shardmill.training.ranks.cluster import Cluster, Meeting, cluster_from_environment, meet
from shardmill.training.ranks.devices import DeviceRequest, visible_gpus
from shardmill.training.ranks.launchers import LauncherName, is_rendering
from shardmill.training.recipes import recipe_names, recipe_path
from shardmill.training.results.run_files.curve import recorded_curve
from shardmill.training.results.run_files.run_folder import RUN_FILE
from shardmill.training.run import session
from shardmill.training.run.files.identity import run_identity, run_name
from shardmill.training.run.files.lengthening import why_not_continued
from shardmill.training.run.files.once import Once, finished_result
from shardmill.training.run.files.settled import read_settled, run_record, settled_by
from shardmill.training.run.files.stored import is_in_store, kept_in_store
from shardmill.training.run.files.summary import summary, write_job
from shardmill.training.run.memory.largest_batch import find_largest_batch
from shardmill.training.run.ranks import (
    preemption_signals,
    train_as_outer_rank,
    train_with_supervised_ranks,
    with_a_rank_for_each_device,
)
from shardmill.training.run.stopping import raise_when_preempted
from shardmill.training.tasks.settings import settings_for

# Lock files stay after a run. They are beside the runs, since a refused run must leave no folder.
_LOCKS = ".locks"
# The estimated share of the time of each stage (percent), for the progress of the whole job.
_SHARES = {"train": 92, "evaluate validation": 3, "evaluate test": 3, "evaluate train": 3, "export": 2}

# The frames of an error hold pipelines whose destructors wait for TensorFlow's threads, for minutes if a
# large model is being compiled. Keep them here, so that they are never destroyed: the process ends with
# os._exit.
_unfinished: list[BaseException] = []


def _parser() -> JobParser:
    parser = JobParser(
        "python -m shardmill.training.train",
        "Train on a published dataset. The same command again resumes an interrupted run.",
        "example: python -m shardmill.training.train clothing --set model.name=ResNet50 --set run.epochs=20",
    )
    parser.add_argument(
        "datasets",
        nargs="+",
        metavar="NAME[@VERSION][?QUERY]",
        help="dataset, or several; the newest version by default",
    )
    parser.add_argument("--weights", metavar="W,W,...", help="data.mixture_weights, of several datasets")
    parser.add_argument(
        "--runs",
        default=default_runs(),
        metavar="DIR",
        help="folder of the training runs ($SHARDMILL_RUNS or ./runs)",
    )
    parser.add_argument(
        "--recipe", metavar="NAME", help=f"settings to begin with: {', '.join(recipe_names())}"
    )
    parser.add_argument("--devices", metavar="all|one|N|cpu:N", help="run.devices")
    parser.add_argument("--workers", metavar="N|MIN..MAX", help="ranks.workers")
    parser.add_argument("--launcher", choices=get_args(LauncherName), help="ranks.launcher")
    parser.add_argument("--framework", choices=["tensorflow", "torch"], help="run.framework")
    parser.add_job_arguments("train")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_main(partial(_run, argv))


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
        recipe = None if args.recipe is None else recipe_path(args.recipe)
        if args.framework is not None:
            args.overrides = [*args.overrides, f"run.framework={args.framework}"]
        if args.weights is not None:
            args.overrides = [*args.overrides, f"data.mixture_weights={args.weights}"]
        config = settings_of(args, TrainConfig, "train", recipe=recipe)
        config = with_devices(config, args.devices, args.workers, args.launcher)
        with shown_to_people():
            result = _trained(joined_text(args.datasets), config, args.root, args.runs)
    except BaseException as error:
        _unfinished.append(error)
        raise
    if result is None:  # only rank 0 has a result
        events.result({})
    else:
        deliver(args, result, summary)
    return 0


@checked
def train_dataset(
    ref: str, config: TrainConfig, *, root: str | Path, runs: str | Path
) -> dict[str, Any] | None:
    """Train ``config`` on a dataset, or return the result of the same run if it has finished.

    Args:
        ref: ``name`` or ``name@version``, each with ``?query`` for a view.
        config: the configuration of the run.
        root: the folder of the datasets.
        runs: folder under which the run's folder is made; one of an object store keeps a copy here
            (``shardmill.training.run.files.stored``).

    Returns:
        The result, JSON-able; None in a process that is a rank other than the first
        (``shardmill.training.ranks.cluster``). If ``ranks.launcher`` only writes a job, the names of its
        files (``shardmill.training.run.files.summary``).

    Raises:
        UsageError, ConfigError: the settings contradict each other, the environment or the dataset.
        NotFoundError: there is no such dataset.
        LockedError: another process runs the same training.
        DataError: there is nothing to train on, or it is damaged.
        Cancelled, Preempted: stopped on request.
    """
    return _trained(ref, config, root, runs)


def _trained(ref: str, config: TrainConfig, root: str | Path, runs: str | Path) -> dict[str, Any] | None:
    """Train as an outer system, the folder of the runs and the settings ask."""
    with ExitStack() as held:
        held.enter_context(faults_of_users(config))
        training = _requested(ref, config, root)
        config, version, place = training.config, training.version, training.place
        if is_rendering(config.ranks.launcher):
            return write_job(config, version, training.name, root, Storage.at(runs))
        raise_when_preempted(preemption_signals(config))
        if place is not None and place.rank > 0:
            _train_as_later_rank(training, Storage.at(runs))
            return None

        # In a folder of this machine, one process at a time; what a store has is trained in a copy.
        stored = {}
        if is_in_store(runs):
            _check_launcher_of_store(config, str(runs))
            stored["stored_in"] = public_location(below(str(runs), training.name))
            again = place is not None
            runs = held.enter_context(kept_in_store(str(runs), training.name, is_started_again=again))
        folder = Storage.at(runs).child(training.name)
        lock = f"{_LOCKS}/{training.name}"
        held.enter_context(Storage.at(runs).exclusive_lock(lock, purpose="the same training run"))
        once = held.enter_context(Once(config, folder))
        if (answer := once.begin()) is not None:
            return {**answer, **stored}

        # In turn with other jobs of this machine. The framework loads only now, so that wrong arguments and
        # finished runs return at once.
        run_dir = Path(folder.uri)
        with _at_work(training, run_dir) as lineage:
            _begin(training, folder)
            result: dict[str, Any] = {}
            if config.ranks.workers is not None:
                result = train_with_supervised_ranks(config, version, root, run_dir)
            elif place is not None:
                result = {**_train_among_others(training, run_dir), "restarts": []}
            else:
                result = session.train(config, version, run_dir)
                result |= {"peak_rss_bytes": own_peak_rss_bytes(), "restarts": []}
            lineage.outputs.append(LineageDataset(folder.uri))
        return {**once.finish(result), **stored}


@dataclass(frozen=True, slots=True)
class _Training:
    """A training that was asked for.

    Attributes:
        config: its configuration.
        version: the dataset version.
        root: the folder of the datasets.
        name: name of the run.
        place: the place of this process among the ranks that an outer system started; None: this process is
            no such rank.
    """

    config: TrainConfig
    version: DatasetVersion
    root: str | Path
    name: str
    place: Cluster | Meeting | None


def _requested(ref: str, config: TrainConfig, root: str | Path) -> _Training:
    """Return the training that arguments and environment ask for."""
    place = cluster_from_environment()
    if place is None:
        config = with_a_rank_for_each_device(config)
    if place is not None and config.ranks.workers is not None:
        raise UsageError(
            "ranks.workers starts ranks, but TF_CONFIG or RANK and WORLD_SIZE say that this process is one",
            "unset ranks.workers, or these variables",
        )
    version = Catalog(root).open_view(ref)
    _check_trainable(version)
    config = settings_for(config, version)
    return _Training(config, version, root, run_name(config, version), place)


def _train_as_later_rank(training: _Training, runs: Storage) -> None:
    """Train as a rank other than the first, which writes nothing; if the run has finished, do nothing."""
    folder, config = runs.child(training.name), training.config
    if config.run.fresh or finished_result(folder, config) is None:
        _train_among_others(training, Path(folder.uri))


def _check_launcher_of_store(config: TrainConfig, runs: str) -> None:
    if config.ranks.launcher == "ray":
        raise UsageError(
            f"ranks.launcher = 'ray' cannot keep its run in {public_location(runs)}: this command would "
            "upload it, but the first rank writes it on another machine",
            "give --runs a folder that all machines share, and copy it to the store afterwards; or start the "
            "ranks yourself, with TF_CONFIG or RANK and WORLD_SIZE",
        )


@contextmanager
def _at_work(training: _Training, run_dir: Path) -> Iterator[Lineage]:
    """Train in turn with other jobs, announce the stages, and report inputs and outputs to OpenLineage."""
    version, config = training.version, training.config
    weights = config.model.weights
    is_path = weights is not None and weights != "imagenet" and config.ranks.launcher == "local"
    if is_path and not Path(weights or "").is_file():
        raise ConfigError(f"model.weights = {weights!r}: no such file", "give the path of a file of weights")
    check_installed(config.run.framework)
    read = [LineageDataset(one.storage.uri, str(one.version)) for one in version.data_sets]
    with (
        reported_job(f"train.{version.name}", read) as lineage,
        Turn(f"train {version.ref}", _resource(config)) as turn,
    ):
        if config.ranks.launcher == "local":  # other launchers place ranks where there is room
            turn.take()
        left_out = () if config.run.evaluate_train else ("evaluate train",)
        shares = {stage: share for stage, share in _SHARES.items() if stage not in left_out}
        events.job("train", shares, run_dir=str(run_dir), epochs=config.run.epochs)
        with recorded_curve(run_dir):
            yield lineage


def _resource(config: TrainConfig) -> Resource:
    """Return what the training of this machine computes on."""
    on_gpus = not DeviceRequest.parse(config.run.devices).on_cpu and bool(visible_gpus())
    return "gpu" if on_gpus else "cpu"


def _train_among_others(training: _Training, run_dir: Path) -> dict[str, Any]:
    """Train as one of the ranks that an outer system has started."""
    config, place = training.config, training.place
    assert place is not None
    if isinstance(place, Meeting) and config.run.framework == "tensorflow":
        place = meet(place, config.ranks.start_timeout_seconds)
    return train_as_outer_rank(config, training.version, training.root, run_dir, place)


def _begin(training: _Training, folder: Storage) -> None:
    """Write run.json, with the values that the run determined when it began."""
    config, version = training.config, training.version
    identity, run_dir = run_identity(config, version), Path(folder.uri)
    settled = read_settled(run_dir)
    if settled is None and isinstance(version, JoinedVersion):
        _report_data_sets(version, folder)
    if settled is None and (reason := why_not_continued(identity, run_dir.parent)) is not None:
        events.log(reason)
    if settled is None:
        automatic = config.data.global_batch_size == "auto"
        size = find_largest_batch(config, version, training.root, training.place) if automatic else None
        settled = settled_by(config, size)
    folder.write_atomic(RUN_FILE, run_record(identity, config, settled))


def _report_data_sets(version: JoinedVersion, folder: Storage) -> None:
    """Say how data sets were prepared differently, and write which of their records look the same."""
    for difference in version.differences:
        events.log(difference, level="warning")
    with folder.atomic_writer(NEAR_DUPLICATES_FILE) as stream:
        pq.write_table(version.near_duplicates, stream)
    if (found := between_in_words(version.near_duplicates)) is not None:
        events.log(found, level="warning")


def has_finished(ref: str, config: TrainConfig, *, root: str | Path, runs: str | Path) -> bool:
    """Return whether a training with this configuration on this version has finished all its epochs."""
    version = Catalog(root).open_view(ref)
    return finished_result(Storage.at(runs).child(run_name(config, version)), config) is not None


def _check_trainable(version: DatasetVersion) -> None:
    if not version.num_examples("train"):
        examples = {name: version.num_examples(name) for name in version.manifest.splits}
        found = ", ".join(
            f"{counted(number, 'example')} in {name}" for name, number in examples.items() if number
        )
        raise DataError(
            f"the train split of {version.ref} is empty; it has: {found or 'no examples at all'}",
            "prepare it again with splits.train > 0, or from a source with a train folder"
            if version.view is None
            else "use another query",
        )


if __name__ == "__main__":
    # The result is written. Exit without Python's clean-up, during which TensorFlow's threads may still run.
    exit_at_once(run_main(partial(_run, None)))
