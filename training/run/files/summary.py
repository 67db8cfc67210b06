"""Summarize the result of a training for people."""

from __future__ import annotations

from typing import Any

from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.readable import counted
from shardmill.training.metrics.figures import FIGURES
from shardmill.training.run.files.job_files import job_summary


def summary(result: dict[str, Any]) -> str:
    """Summarize the result in a few lines."""
    if "submit" in result:
        return job_summary(result)
    ref, epochs = reference_of(result), counted(result["epochs"], "epoch")
    lines = [f"trained {result['model']} on {ref} for {epochs}"]
    if result["unchanged"]:
        lines[0] += " (finished before; run.fresh=true trains anew)"
    for split, figures in result["metrics"].items():
        names = [name for name in FIGURES if name in figures]
        chosen = [result["best_metric"]] if result.get("best_metric") in names else []
        told = [
            FIGURES[name].precise(figures[name]) for name in dict.fromkeys([names[0], *chosen, names[-1]])
        ]
        lines.append(f"  {split:<10} {', '.join(told)}")
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


def _restart_line(restart: dict[str, Any]) -> str:
    said = restart["message"].splitlines()[0]
    return f"rank {restart['rank']} of {restart['num_ranks']} {said} (after step {restart['step']})"
