"""Training with PyTorch as users start it: the command, supervised ranks, a rank killed, torchrun."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill import Dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.order import order_from_settings
from shardmill.training.results.run_files.rank_balance import read_balance
from tests.samples.models.nan_torch_model import MARKER, NAN_AT
from tests.samples.training.torch_runs import assert_same_model, command, consumed, settings

REPOSITORY = Path(__file__).parents[3]
TRAIN = [sys.executable, "-m", "shardmill.training.train"]
# With batch normalisation, whose moments must be those of all ranks.
EPOCHS = 6
SYNCHRONISED = (
    *("--set", "model.name=small_cnn", "--set", "optimizer.ema_decay=0.9"),
    *("--set", f"run.epochs={EPOCHS}"),
    # Adam divides by the size of gradients: of those near 0 it would enlarge differences of rounding.
    *("--set", "optimizer.name=sgd"),
)
RANKS = ("--set", "run.devices=cpu:2")
SECONDS = 240


def run(argv: list[str]) -> dict[str, Any]:
    """Run a command, and return the result that it prints."""
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def planned(version: DatasetVersion) -> list[tuple[int, int, list[str]]]:
    """The records that a run must consume, by the order alone."""
    config, table = settings(), Dataset(version).table("train")
    order = order_from_settings(config.data, table, version.manifest.classes)
    steps = [(epoch, step) for epoch in range(EPOCHS) for step in range(order.steps_per_epoch)]
    plans = [order.step(*step) for step in steps]
    return [(plan.epoch, plan.step, table.ids(plan.ordinals[plan.weights > 0])) for plan in plans]


@pytest.fixture(scope="module")
def alone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unbroken run of one process."""
    runs = tmp_path_factory.mktemp("alone")
    result = run(
        [*TRAIN, *command(root, "--runs", str(runs), "--framework", "torch", "--json", *SYNCHRONISED)]
    )
    assert (result["num_replicas"], result["devices"]) == (1, ["cpu"])
    return Path(result["run_dir"])


def step_reached(runs: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait for the checkpoint of a step."""
    until = time.monotonic() + SECONDS
    while not list(runs.glob(f"set-*/checkpoints/step-{step:09d}.npz")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def started(argv: list[str]) -> subprocess.Popen[str]:
    """Start a command."""
    return subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ranks_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The ranks that a command has started, by number."""
    found = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "shardmill.training.train_rank" in child.cmdline()
    ]
    return sorted(found, key=lambda rank: json.loads(rank.environ()["TF_CONFIG"])["task"]["index"])


def test_a_killed_rank_costs_a_restart_and_no_record(
    alone: Path, root: Path, dataset: Dataset, tmp_path: Path
) -> None:
    process = started([*TRAIN, *command(root, "--runs", str(tmp_path), "--json", *SYNCHRONISED, *RANKS)])
    step_reached(tmp_path, 2, process)
    second = ranks_of(process)[1]
    second.send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    result = json.loads(out.splitlines()[-1])
    (restart,) = result["restarts"]
    assert (restart["rank"], restart["num_ranks"], restart["reason"]) == (1, 2, "signal")
    assert (result["num_replicas"], result["devices"]) == (2, ["cpu", "cpu"])
    run_dir = Path(result["run_dir"])
    assert run_dir.name == alone.name
    assert consumed(run_dir) == planned(dataset.version)
    assert_same_model(run_dir, alone)


def test_a_preempted_run_of_unequal_ranks_goes_on_with_one(
    alone: Path, root: Path, dataset: Dataset, tmp_path: Path
) -> None:
    argv = [*TRAIN, *command(root, "--runs", str(tmp_path), "--json", *SYNCHRONISED)]
    process = started([*argv, *RANKS, "--set", "ranks.shares=[3, 1]"])
    step_reached(tmp_path, 2, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 75, err
    result = run(argv)
    assert (result["num_replicas"], result["restarts"]) == (1, [])
    assert consumed(Path(result["run_dir"])) == planned(dataset.version)
    assert_same_model(Path(result["run_dir"]), alone)


def test_a_rank_that_computes_nan_is_named(
    root: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARKER, str(tmp_path / "spoiled"))
    spoiled = ("--set", "model.name=tests.samples.models.nan_torch_model", "--set", f"run.epochs={EPOCHS}")
    later = ("--set", f"run.log_every_steps={NAN_AT + 2}", "--set", "run.checkpoint_every_steps=2")
    runs = tmp_path / "runs"
    result = run([*TRAIN, *command(root, "--runs", str(runs), "--json", *spoiled, *later, *RANKS)])
    assert (tmp_path / "spoiled").exists()
    (restart,) = result["restarts"]
    assert (restart["rank"], restart["reason"]) == (1, "loss")
    assert restart["message"].endswith("first on rank 1")
    assert consumed(Path(result["run_dir"])) == planned(dataset.version)


def test_torchrun_starts_ranks_too(alone: Path, root: Path, dataset: Dataset, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = command(root, "--runs", str(tmp_path), "--json", *SYNCHRONISED)
    result = run([*torchrun, "-m", "shardmill.training.train", *arguments])
    assert result["num_replicas"] == 2
    assert consumed(Path(result["run_dir"])) == planned(dataset.version)
    assert_same_model(Path(result["run_dir"]), alone)


def test_a_refused_setting_ends_with_status_2(root: Path, tmp_path: Path) -> None:
    argv = [*TRAIN, *command(root, "--runs", str(tmp_path), "--set", "run.jit_compile=true")]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "run.jit_compile = True does not work with run.framework = 'torch'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_slow_rank_is_measured_and_takes_fewer_rows(root: Path, dataset: Dataset, tmp_path: Path) -> None:
    slow = ("--set", "model.name=tests.samples.models.slow_torch_model", "--set", f"run.epochs={EPOCHS}")
    argv = [*TRAIN, *command(root, "--runs", str(tmp_path), "--json", *slow, *RANKS)]
    result = run([*argv, "--set", "ranks.shares=measured"])
    run_dir = Path(result["run_dir"])
    assert consumed(run_dir) == planned(dataset.version)
    fast, late = read_balance(run_dir).ranks
    assert fast.rows > late.rows
    assert fast.rows + late.rows == 10
    assert fast.examples + late.examples == len(dataset.table("train"))
    assert [row["rows"] for row in result["rank_balance"]["ranks"]] == [fast.rows, late.rows]
    kept = json.loads((run_dir / "logs" / "ranks" / "shares.json").read_bytes())
    assert kept["seconds_per_example"][1] > kept["seconds_per_example"][0]
