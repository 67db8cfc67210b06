"""Tell people the result of a training, and write the files of a job whose ranks an outer system starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.ranks import launchers
from shardmill.training.ranks.devices import DeviceRequest, RankCount
from shardmill.training.ranks.launchers.outer import OuterJob
from shardmill.training.run.files.stored import fetch_folder


def summary(result: dict[str, Any]) -> str:
    """Summarize the result in a few lines."""
    if "submit" in result:
        return job_summary(result)
    ref, epochs = reference_of(result), counted(result["epochs"], "epoch")
    lines = [f"trained {result['model']} on {ref} for {epochs}"]
    if result["unchanged"]:
        lines[0] += " (finished before; run.fresh=true trains anew)"
    for split, figures in result["metrics"].items():
        lines.append(f"  {split:<10} {key_figures(figures, result.get('best_metric'))}")
        of_sets = figures.get("by_data_set", {}).items()
        lines += [f"    {name}: {key_figures(own, result.get('best_metric'))}" for name, own in of_sets]
    lines += [f"  note: {note}" for note in result["notes"]]
    lines += [f"  restarted: {_restart_line(restart)}" for restart in result.get("restarts", [])]
    rate, devices = f"{result['images_per_second']:,.0f} images/s", counted(result["num_replicas"], "device")
    lines += [
        f"  {rate} on {devices}, waiting for data {result['input_wait_fraction']:.0%} of the time",
        f"  model:       {result['export_dir']}",
        *([f"  report:      {result['report']}"] if "report" in result else []),
        f"  TensorBoard: tensorboard --logdir {result['tensorboard_dir']}",
        *([f"  kept in:     {result['stored_in']}"] if "stored_in" in result else []),
    ]
    return "\n".join(lines)


def key_figures(figures: Mapping[str, Any], best_metric: str | None = None) -> str:
    """Return the most important figures of a split in words."""
    names = [name for name in FIGURES if name in figures]
    chosen = [best_metric] if best_metric in names else []
    return ", ".join(
        FIGURES[name].precise(figures[name]) for name in dict.fromkeys([names[0], *chosen, names[-1]])
    )


def _restart_line(restart: dict[str, Any]) -> str:
    said = restart["message"].splitlines()[0]
    return f"rank {restart['rank']} of {restart['num_ranks']} {said} (after step {restart['step']})"


FOLDER = "jobs"

# Settings of [train.ranks] that say how the job is written; ranks do not need them.
_OF_THE_JOB = frozenset(("workers", "launcher", "slurm", "kubernetes"))


def write_job(
    config: TrainConfig, version: DatasetVersion, name: str, root: str | Path, runs: Storage
) -> dict[str, Any]:
    """Write the files of the job of a run to ``<runs>/jobs/<name>/``; for a store, also to its local copy.

    Args:
        config: the configuration of the run, with a launcher that renders.
        version: the dataset version.
        name: the name of the run.
        root: the folder of the datasets.
        runs: the folder of the runs.

    Returns:
        ``launcher``, ``run_dir``, ``files`` (local paths) and ``submit`` (a shell command).

    Raises:
        ConfigError: the job cannot be written with these settings.
    """
    launcher, folder = config.ranks.launcher, runs.child(FOLDER).child(name)
    job = outer_job(config, version, name, root, runs.location)
    rendered = launchers.render(launcher, job, getattr(config.ranks, launcher, None), config.run.framework)
    for file, text in rendered.files.items():
        folder.write_atomic(file, text.encode())
    here = Path(folder.uri) if runs.is_local else fetch_folder(runs.location, FOLDER) / name
    paths = {file: str(here / file) for file in rendered.files}
    return {
        "launcher": launcher,
        "run_dir": runs.child(name).uri,
        "files": list(paths.values()),
        "submit": shlex.join(paths.get(word, word) for word in rendered.submit),
    }


def outer_job(
    config: TrainConfig, version: DatasetVersion, name: str, root: str | Path, runs: str
) -> OuterJob:
    """Return the command of the ranks of a run that an outer system starts.

    Raises:
        ConfigError: the job would begin anew at each start.
    """
    if config.run.fresh:
        raise ConfigError(
            "run.fresh = true in a job that may be started again: each start would forget the others",
            "leave run.fresh out; to train anew, remove the folder of the run",
        )
    ranks = config.ranks
    given = {name: getattr(ranks, name) for name in type(ranks).model_fields if name not in _OF_THE_JOB}
    of_rank = type(ranks).model_validate(given)
    return OuterJob(
        name=name,
        dataset=version.ref,
        root=str(root) if "://" in str(root) else str(Path(root).absolute()),
        runs=runs,
        config_json=config.model_copy(update={"ranks": of_rank}).model_dump_json(exclude_defaults=True),
        count=RankCount.parse(ranks.workers or "1"),
        on_cpu=DeviceRequest.parse(config.run.devices).on_cpu,
        stop_timeout_seconds=ranks.stop_timeout_seconds,
        preemption_signal=config.run.preemption_signal,
        max_restarts=ranks.max_restarts,
    )


def job_summary(result: dict[str, Any]) -> str:
    """Return a few lines that name the written files and the command that starts the job."""
    written = "\n".join(f"wrote {path}" for path in result["files"])
    return f"{written}\nstart it with: {result['submit']}\nthe run will be in: {result['run_dir']}"
