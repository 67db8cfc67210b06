"""Prepare, train, evaluate and predict from Python: what the commands of these names do and return.

Each function runs its job in a process of its own, as the command does. So a notebook or script keeps its
memory, loads neither Beam nor TensorFlow, and needs no ``if __name__ == "__main__"``. Arguments and settings
are checked before the job starts. Progress is shown on standard error. Ctrl-C stops the whole job, and so
does the end of this process; the same call again continues it. No flow run is recorded.

Settings are those of the configuration, by their names or as nested tables; both may be mixed::

    settings = {"image.size": 128, "shards": {"container": "none"}}
    shardmill.prepare("photos", dataset="photos", settings=settings)

``shardmill settings`` lists and searches them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import prepare_command
from shardmill.flows.flow_runs.jobs import (
    ENDINGS,
    evaluate_command,
    job_request,
    load_job_settings,
    predict_command,
    train_command,
)
from shardmill.flows.parameters import root_or_default, runs_or_default
from shardmill.infra.arguments import checked
from shardmill.infra.dataset.views.references import joined_text
from shardmill.infra.errors import DataError, NotFoundError, UsageError
from shardmill.infra.processes.children import result_of
from shardmill.infra.strict_json import dump_json
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.stored import opened_run


@checked
def prepare(
    source: str | Path,
    *,
    dataset: str,
    root: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    recipe: str | None = None,
    as_is: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Turn a folder of images into a version of a dataset, unless the newest version is already up to date.

    Args:
        source: folder of images, one folder a class; a path or a URI. Other kinds of sources
            (``source.kind``) may be a file or a pattern of names too.
        dataset: name of the dataset.
        root: folder of the datasets, a path or a URI; None: ``$SHARDMILL_ROOT`` or ``./datasets``.
        settings: settings of the table ``[prepare]``; they win over all others.
        config: a TOML file with such a table.
        recipe: a recipe to begin with.
        as_is: recognise a dataset of TensorFlow Datasets or WebDataset, and copy its images instead of
            encoding them again.
        dry_run: return what is expected, and write nothing.

    Returns:
        JSON-able, what ``shardmill prepare --json`` prints. ``version`` is the number of the version,
        ``unchanged`` whether it was there before. ``num_inputs`` is the sum of ``num_records``,
        ``num_duplicates``, ``num_filtered`` and ``num_quarantined``; ``quarantine`` counts its reasons.
        ``splits``: by name, ``num_examples``, ``num_shards``, ``num_bytes`` and ``class_counts``.
        ``classes``: the names, in the order of the labels. ``manifest`` and ``report``: paths or URIs.
        ``seconds``, ``images_per_second``, ``peak_memory_bytes``: the cost.

        With ``dry_run``: ``next_version``, ``num_inputs``, ``num_to_read``, ``num_known``, ``left_out``,
        ``first_inputs``, ``classes`` (counts by name), ``splits``, ``disk_bytes``, ``peak_disk_bytes``,
        ``seconds``, ``sample`` and ``warnings``.

    Raises:
        ConfigError: an argument or a setting is unknown or wrong. NotFoundError: the source is not there.
        DataError: too many images cannot be used; nothing was published.
        ShardmillError: see shardmill.infra.errors.
    """
    load = partial(load_job_settings, PrepareConfig, "prepare", config, recipe=recipe, given=settings)
    request = job_request(os.fspath(source), dataset, _places(root)[0], load, as_is=as_is)
    command = prepare_command(request.source, request.dataset, request.root, request.config)
    return result_of([*command, *(["--dry-run"] if dry_run else [])])


@checked
def train(
    dataset: str | Sequence[str],
    *,
    root: str | Path | None = None,
    runs: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    recipe: str | None = None,
) -> dict[str, Any]:
    """Train a model on a version of a dataset, evaluate and export it; return the result of a finished run.

    Args:
        dataset: ``name``, ``name@3`` or ``name@latest``; with a query, a view: ``name@3?width > 800``.
            Several in a list are read as one, or with ``data.mixture_weights`` by their shares.
        root: folder of the datasets, a path or a URI; None: ``$SHARDMILL_ROOT`` or ``./datasets``.
        runs: folder of the training runs, a path or a URI; None: ``$SHARDMILL_RUNS`` or ``./runs``.
        settings: settings of the table ``[train]``, such as ``model.name``, ``run.epochs``, ``run.devices``,
            ``run.framework`` or ``ranks.workers``; they win over all others.
        config: a TOML file with such a table.
        recipe: a recipe to begin with, such as "finetune".

    Returns:
        JSON-able, what ``shardmill train --json`` prints. ``run_dir`` is the folder of the run, which
        ``evaluate`` and ``predict`` take; ``unchanged`` whether the run had finished before. ``metrics``: by
        split, the figures of the best model, such as ``loss`` and ``accuracy``. ``best``: its epoch and
        figures. ``history``: the figures of each epoch. ``epochs``, ``steps``, ``global_batch_size``,
        ``images_per_second``, ``seconds``. ``export_dir``, ``report``, ``predictions`` (by split): paths.
        ``notes``: remarks about the run.

        If ``ranks.launcher`` only writes the files of a job, their names instead. Empty in a process that an
        outer system started as a rank other than the first.

    Raises:
        ConfigError: an argument or a setting is unknown or wrong, or the training diverged.
        NotFoundError: there is no such dataset. DataError: there is nothing to train on, or it is damaged.
        LockedError: another process runs the same training. ShardmillError: see shardmill.infra.errors.
    """
    chosen = load_job_settings(TrainConfig, "train", config, recipe=recipe, given=settings)
    return result_of(train_command(joined_text(dataset), *_places(root, runs), chosen))


@checked
def evaluate(
    run: str | Path,
    *,
    split: str = "test",
    dataset: str | None = None,
    root: str | Path | None = None,
    runs: str | Path | None = None,
) -> dict[str, Any]:
    """Evaluate the best model of a finished run again, on any split.

    Args:
        run: folder of the run; or its name below ``runs``, or the beginning of that name if no other run's
            name begins so; or ``name@alias``.
        split: "train", "validation" or "test".
        dataset: another version with the same classes, ``name`` or ``name@3``; None: that of the run.
        root: folder of the datasets, a path or a URI; None: ``$SHARDMILL_ROOT`` or ``./datasets``.
        runs: folder of the training runs, a path or a URI; None: ``$SHARDMILL_RUNS`` or ``./runs``.

    Returns:
        JSON-able, what ``shardmill evaluate --json`` prints: ``run``, ``dataset``, ``version``, ``split``,
        ``metrics`` (the figures, such as ``loss``, ``accuracy`` and ``num_examples``), and ``folder``, in
        which the predictions are.

    Raises:
        NotFoundError: there is no such run, dataset or split. DataError: the run is unfinished.
        ConfigError: an argument is wrong, or the dataset has other labels or classes than the run.
        ShardmillError: see shardmill.infra.errors.
    """
    return result_of(evaluate_command(os.fspath(run), split, dataset, *_places(root, runs)))


@checked
def predict(
    run: str | Path,
    paths: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    overlays: bool = False,
    root: str | Path | None = None,
    runs: str | Path | None = None,
) -> dict[str, Any]:
    """Predict image files with the exported model of a finished run.

    Args:
        run: folder of the run; or its name below ``runs``, or the beginning of that name if no other run's
            name begins so; or ``name@alias``.
        paths: an image file or a folder of them, or several.
        out: file for the predictions, a row for each image, whose ending tells the format: ``.csv``,
            ``.parquet``, ``.json`` or ``.jsonl`` (an object a line). Masks are PNG files beside it. None: the
            rows are returned.
        overlays: if the run predicts masks, also write each image with its mask laid over it.
        root: folder of the datasets, for runs of earlier releases; None: ``$SHARDMILL_ROOT`` or
            ``./datasets``.
        runs: folder of the training runs, a path or a URI; None: ``$SHARDMILL_RUNS`` or ``./runs``.

    Returns:
        JSON-able: ``run``, ``predicted`` and ``refused`` (the numbers of files), and ``out``; or, without a
        file, ``predictions``: the objects that ``shardmill predict --format json`` prints. Each has ``path``,
        the columns of the task (of a classifier ``predicted``, ``probability`` and ``probabilities``), and
        ``reason`` and ``message``, which are None unless the file could not be decoded.

    Raises:
        NotFoundError: a path or the run is not there. DataError: the run is unfinished, or no file could be
            predicted. UsageError: the run predicts masks and ``out`` is missing, or its ending is unknown.
        ShardmillError: see shardmill.infra.errors.
    """
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    kind = "json" if out is None else ENDINGS.get(Path(out).suffix)
    if kind is None:
        raise UsageError(f"out = {out} has none of the endings {', '.join(ENDINGS)}", "it tells the format")
    if not given:
        raise UsageError("paths is empty", "name image files, or folders of them")
    if missing := [path for path in given if not os.path.lexists(path)]:
        raise NotFoundError(f"{missing[0]}: no such file or folder", "leave it out, or mend its path")
    folders = _places(root, runs)
    with opened_run(os.fspath(run), folders[1]) as found, tempfile.TemporaryDirectory() as place:
        found.finished()
        if out is None and found.task == "segmentation":
            raise UsageError(
                f"the run {found.name} predicts masks, which are files beside the table that names them",
                "name the table: out='predictions.csv'",
            )
        listed, rows = Path(place, "paths"), Path(place, "rows")
        listed.write_text(dump_json(given[1:]))  # a command line has no room for many
        table = rows if out is None else Path(out).expanduser().absolute()
        command = predict_command(found.path, kind, table, folders[0], overlays=overlays)
        result = result_of([*command, "--paths-from", str(listed), "--", given[0]])
        if out is None:
            del result["out"]
            result["predictions"] = [json.loads(line) for line in rows.read_text().splitlines()]
    if not result["predicted"]:
        raise DataError("no file could be predicted", _why(result))
    return result


def _why(result: dict[str, Any]) -> str:
    """Say why no file could be predicted."""
    if not result["refused"]:
        return "there is no file in the folders"
    if "out" in result:
        return f"see the reasons in {result['out']}"
    first = result["predictions"][0]
    return f"{first['path']}: {first['message']}"


def _places(root: str | Path | None, runs: str | Path | None = None) -> tuple[str, str]:
    """Return the folders of the datasets and of the training runs."""
    given = [None if place is None else os.fspath(place) for place in (root, runs)]
    return root_or_default(given[0]), runs_or_default(given[1]).removeprefix("file://")
