"""The program of docs/pytorch.md trains over gloo, as users start it: mp.spawn, torchrun, a rank killed.

Whatever the number of ranks, and wherever they were killed, the weights at the end are those of one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from shardmill.infra.processes.ports import free_port
from tests.documentation.blocks import blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pytorch.md"
PROGRAM = "distributed.py"
SETTINGS = "EPOCHS, BATCH_SIZE, IMAGE_SIZE, SAVE_EVERY = 3, 64, 96, 100"
STEPS_PER_EPOCH = 6
EPOCHS = 3
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
# The sums of a batch's gradients are taken in another order.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


SPAWN = """
import os, runpy, sys
import torch

def rank(number, port):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    runpy.run_path(sys.argv[1])["main"](*sys.argv[2:5])

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, (sys.argv[5],), nprocs=2)
"""


def command(launcher: list[str], root: Path, out: Path, epochs: int = EPOCHS) -> list[str]:
    """The command that runs the program of the page, with small numbers, in a folder of its own."""
    (block,) = [block for block in blocks(PAGE) if block.file == PROGRAM]
    assert SETTINGS in block.text
    out.mkdir(parents=True, exist_ok=True)
    program = out / PROGRAM
    program.write_text(
        block.text.replace(SETTINGS, SETTINGS.replace("3, 64, 96, 100", f"{epochs}, 10, 24, 2"))
    )
    return [*launcher, str(program), "set@1", str(root), str(out)]


def run(argv: list[str]) -> dict[str, Any]:
    """The result that the first rank prints."""
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def weights(out: Path) -> dict[str, Any]:
    """The network's weights in the checkpoint, which is that of the end."""
    saved = torch.load(out / "checkpoint.pt")
    assert (saved["loader"]["epoch"], saved["loader"]["step"]) == (EPOCHS, 0)
    network: dict[str, Any] = saved["network"]
    return network


def assert_same_end(out: Path, alone: Path) -> None:
    left, right = weights(out), weights(alone)
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], **TOLERANCE)


@pytest.fixture(scope="module")
def alone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unbroken run of one process."""
    out = tmp_path_factory.mktemp("alone")
    result = run(command([sys.executable], root, out))
    assert (result["ranks"], result["epoch"]) == (1, EPOCHS)
    return out


def test_spawned_ranks_train_the_same_model(root: Path, alone: Path, tmp_path: Path) -> None:
    spawn = tmp_path / "spawn.py"
    spawn.write_text(SPAWN)
    result = run([*command([sys.executable, str(spawn)], root, tmp_path), str(free_port())])
    assert result["ranks"] == 2
    assert_same_end(tmp_path, alone)


def test_torchrun_goes_on_where_another_number_of_ranks_was(root: Path, alone: Path, tmp_path: Path) -> None:
    run(command([sys.executable], root, tmp_path, epochs=1))
    result = run(command([*TORCHRUN, "--standalone"], root, tmp_path))
    assert result["ranks"] == 2
    assert_same_end(tmp_path, alone)


def test_two_hosts_meet_at_a_rendezvous(root: Path, alone: Path, tmp_path: Path) -> None:
    """Two agents of torchrun with one rank each stand for two hosts."""
    launcher = [*TORCHRUN[:3], "--nproc-per-node", "1", "--nnodes", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    argv = command(launcher, root, tmp_path)
    agents = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [agent.communicate(timeout=240)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0]
    results = [json.loads(text.splitlines()[-1]) for text in printed if text.strip()]
    assert [result["ranks"] for result in results] == [2]
    assert_same_end(tmp_path, alone)


def test_torchrun_starts_anew_after_a_rank_was_killed(
    root: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without this, torchrun keeps one store for all its restarts, and ranks may find addresses of dead ranks
    # in it, and wait for them (https://github.com/pytorch/pytorch/issues/135712).
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    argv = command([*TORCHRUN, "--standalone", "--max-restarts", "1"], root, tmp_path)
    agent = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not (tmp_path / "checkpoint.pt").exists():
        assert agent.poll() is None, agent.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.01)
    ranks = [
        child for child in psutil.Process(agent.pid).children() if str(tmp_path / PROGRAM) in child.cmdline()
    ]
    assert len(ranks) == 2
    ranks[1].kill()
    out, err = agent.communicate(timeout=240)
    assert agent.returncode == 0, err
    assert "exitcode: -9" in err, "it was over before it was killed"
    assert json.loads(out.splitlines()[-1])["ranks"] == 2
    assert_same_end(tmp_path, alone)
