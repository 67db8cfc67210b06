"""Ranks that are started from outside, by environment variables, as a cluster would start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from shardmill.infra.processes.ports import free_port, free_ports
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.results.run_files.curve import read_curve


def tf_config(hosts: Sequence[str] = ("localhost", "localhost")) -> list[dict[str, str]]:
    """``TF_CONFIG`` of each rank, with ports that are free now."""
    addresses = tuple(f"{host}:{port}" for host, port in zip(hosts, free_ports(len(hosts)), strict=True))
    return [{"TF_CONFIG": Cluster(addresses, rank).to_tf_config()} for rank in range(len(hosts))]


def meeting(num_ranks: int = 2, host: str = "localhost", port: int | None = None) -> list[dict[str, str]]:
    """The variables of torchrun for each rank."""
    same = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": host, "MASTER_PORT": str(port or free_port())}
    return [{**same, "RANK": str(rank)} for rank in range(num_ranks)]


def command(root: Path, ref: str, config: Mapping[str, Any], python: str = sys.executable) -> list[str]:
    """The command of each rank."""
    places = ["--root", str(root / "datasets"), "--runs", str(root / "runs")]
    settings = ["--json", "--config-json", json.dumps(config)]
    return [python, "-m", "shardmill.training.train", ref, *places, *settings]


class OuterRanks:
    """Ranks that were started by hand. A context manager: none outlives it.

    Attributes:
        processes: the process of each rank, by rank.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        folder: Path,
        prefixes: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Start the ranks.

        Args:
            argv: the command of each.
            environments: variables of each, on top of this process's.
            folder: for what they print.
            prefixes: words before the command of each.
        """
        folder.mkdir(parents=True, exist_ok=True)
        attempt = len(list(folder.glob("*-0.err")))
        self._outputs = [folder / f"{attempt}-{rank}" for rank in range(len(environments))]
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank, (variables, output) in enumerate(zip(environments, self._outputs, strict=True)):
            before = [] if prefixes is None else list(prefixes[rank])
            with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err:
                process = subprocess.Popen(
                    [*before, *argv],
                    stdout=out,
                    stderr=err,
                    env={**os.environ, **variables},
                    start_new_session=True,
                )
            self.processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()  # its children follow
            process.wait()

    def trainers(self, rank: int) -> list[psutil.Process]:
        """The processes of a rank that train."""
        return [
            child
            for child in psutil.Process(self.processes[rank].pid).children(recursive=True)
            if "shardmill.training.train_rank" in child.cmdline()
        ]

    def wait_for_steps(self, root: Path, steps: int, seconds: float = 600.0) -> None:
        """Wait until the curve of the only run below ``root`` has so many points of the train split."""
        until = time.monotonic() + seconds
        while steps_done(root) < steps:
            for rank, process in enumerate(self.processes):
                assert process.poll() is None, self.said(rank)
            assert time.monotonic() < until, [self.said(rank) for rank in range(len(self.processes))]
            time.sleep(0.05)

    def finish(self, seconds: float = 300.0) -> list[int]:
        """Wait for all ranks; the exit status of each."""
        until = time.monotonic() + seconds
        return [process.wait(max(until - time.monotonic(), 0.1)) for process in self.processes]

    def said(self, rank: int) -> str:
        """The standard error of a rank."""
        return self._outputs[rank].with_suffix(".err").read_text()

    def result(self) -> dict[str, Any]:
        """The result that rank 0 printed."""
        lines = self._outputs[0].with_suffix(".out").read_text().splitlines()
        assert lines, self.said(0)
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to the process that an outer system knows as the rank."""
        self.processes[rank].send_signal(number)


def steps_done(root: Path) -> int:
    """The points of the train split in the curve of the only run."""
    curves = list((root / "runs").rglob("curve.jsonl"))
    return sum(point.get("split") == "train" for curve in curves for point in read_curve(curve.parent))
