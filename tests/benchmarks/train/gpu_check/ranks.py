"""Two ranks train and one is killed: torchrun starts both again, and each record is read as planned.

Two ranks of one GPU sum gradients with gloo, because NCCL wants a GPU for each rank.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch

from shardmill import Dataset
from shardmill.training.config import TrainConfig
from shardmill.training.order import order_from_settings
from tests.benchmarks.train.gpu_check.bundle import DATASET
from tests.benchmarks.train.gpu_check.measuring import Told
from tests.benchmarks.train.gpu_check.rows import Row
from tests.samples.ranks.outer_ranks import OuterRanks, command, steps_done
from tests.samples.training.torch_runs import consumed, weights

_STEPS_BEFORE_KILL = 5
_TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
# A machine without network may not know its own name.
_TORCHRUN += ["--local-addr", "127.0.0.1"]
_ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    # Else torchrun keeps one store for all its restarts, and ranks may find addresses of dead ranks in it
    # (https://github.com/pytorch/pytorch/issues/135712).
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def killed_and_resumed(told: Told) -> Iterator[Row]:
    """Train with two ranks, kill one, and compare records and weights with the order and with one rank.

    If synchronised batch normalisation fails, the ranks train without it.
    """
    for synchronized in (True, False):
        name = f"two ranks, batch normalisation {'' if synchronized else 'not '}synchronised"
        try:
            yield replace(_trained(told, _config(told, synchronized=synchronized)), what=name)
            return
        except AssertionError as error:  # a process ended early
            yield Row(name, note=f"FAILED: {str(error).strip().splitlines()[-1]}")


def _trained(told: Told, config: dict[str, Any]) -> Row:
    dataset, seconds = told.open(), told.seconds
    with tempfile.TemporaryDirectory() as folder:
        one, two = _place(Path(folder, "one"), told), _place(Path(folder, "two"), told)
        argv = command(two, f"{DATASET}@1", config)
        alone = OuterRanks(command(one, f"{DATASET}@1", config), [{}], one / "logs")
        both = OuterRanks([sys.executable, *_TORCHRUN, *argv[1:]], [_ENVIRONMENT], two / "logs")
        with alone, both:
            both.wait_for_steps(two, _STEPS_BEFORE_KILL, seconds)
            trainers, killed = both.trainers(0), time.perf_counter()
            trainers[1].kill()
            psutil.wait_procs(trainers, timeout=seconds)  # torchrun ends the other
            before = steps_done(two)
            both.wait_for_steps(two, before + 1, seconds)
            gap = time.perf_counter() - killed
            assert both.finish(seconds) == [0], both.said(0)
            assert alone.finish(seconds) == [0], alone.said(0)
        result = both.result()
        assert consumed(Path(result["run_dir"])) == planned(dataset, config), "other records than planned"
        models = [weights(Path(ranks.result()["run_dir"])) for ranks in (both, alone)]
        ours, theirs = (torch.cat([part.float().flatten() for part in model.values()]) for model in models)
        difference = float((ours - theirs).norm() / theirs.norm())
    note = (
        f"{', '.join(result['devices'])}; a rank killed at step {before} of {result['steps']}, next step "
        f"after {gap:.1f} s; records as planned; weights {difference:.1g} of their norm off those of one rank"
    )
    return Row("", gpu_bytes=max(result["device_peak_bytes"].values(), default=None), note=note)


def planned(dataset: Dataset, config: dict[str, Any]) -> list[tuple[int, int, list[str]]]:
    """Return epoch, step and records of each step of a run, by the order alone."""
    settings, table = TrainConfig(**config), dataset.table("train")
    order = order_from_settings(settings.data, table, dataset.classes)
    epochs = range(settings.run.epochs)
    plans = [order.step(epoch, step) for epoch in epochs for step in range(order.steps_per_epoch)]
    return [(plan.epoch, plan.step, table.ids(plan.ordinals[plan.weights > 0])) for plan in plans]


def _config(told: Told, *, synchronized: bool) -> dict[str, Any]:
    return {
        "model": {"name": "small_cnn", "dropout": 0.0, "synchronized_batchnorm": synchronized},
        "data": {"image_size": 64, "global_batch_size": min(64, len(told.open().table("train")) // 4)},
        "optimizer": {"name": "sgd", "learning_rate": 0.01},
        "run": {
            "framework": "torch",
            "devices": "one" if told.on_gpu else "cpu:1",
            "epochs": 6,
            "trace_records": True,
            "checkpoint_every_steps": 2,
            "log_every_steps": 1,
            "log_pictures": False,
        },
        "ranks": {"collectives": "ring", "start_timeout_seconds": told.seconds},
    }


def _place(folder: Path, told: Told) -> Path:
    """Make a folder with the datasets in it, for the runs of its own."""
    folder.mkdir()
    (folder / "datasets").symlink_to(told.root)
    return folder
