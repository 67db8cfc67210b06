"""The prepare commands that are compared: Shardmill's and its peers'."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.inputs.photographs import QUALITY, SHORT_SIDE
from tests.benchmarks.prepare.written import count_mds, count_tars, count_tfrecords

NUM_SHARDS = 8
WORKERS = 2
SHARDMILL = "shardmill"


@dataclass(frozen=True)
class Peer:
    """A way to write a dataset.

    Attributes:
        title: in the table.
        aim: how many times as fast Shardmill shall be.
        module: name in tests.benchmarks.prepare.peers; None for Shardmill itself.
        count: (records, bytes) below a folder.
        env: variables that it needs.
        requirements: the list of packages of its environment.
        codec: what converts its photographs; None for the one that the comparison chooses.
    """

    title: str
    aim: float | None
    module: str | None
    count: Callable[[Path], tuple[int, int]] = count_tfrecords
    env: dict[str, str] = field(default_factory=dict)
    requirements: str = "prepare.txt"
    codec: str | None = None

    def argv(self, python: Path, source: Path, out: Path, codec: str) -> list[str]:
        """Return the command that writes the photographs of ``source`` to ``out``."""
        if self.module is None:
            return _prepare_argv(source, out)
        told = ["--shards", str(NUM_SHARDS), "--workers", str(WORKERS), "--codec", self.codec or codec]
        return [
            str(python),
            "-m",
            f"tests.benchmarks.prepare.peers.{self.module}",
            str(source),
            str(out),
            *told,
        ]


def _prepare_argv(source: Path, out: Path) -> list[str]:
    argv = [
        sys.executable,
        "-m",
        "shardmill.beam_jobs.prepare",
        str(source),
        "--dataset",
        "peers",
        "--root",
        str(out),
    ]
    settings = {
        "image.size": SHORT_SIDE,
        "image.quality": QUALITY,
        "shards.num_shards": NUM_SHARDS,
        "runner.processes": WORKERS,
        "splits.train": 1.0,
        "splits.validation": 0.0,
        "splits.test": 0.0,
    }
    for key, value in settings.items():
        argv += ["--set", f"{key}={value}"]
    return [*argv, "--json"]


def _on_beam(mode: str) -> dict[str, str]:
    return {"SHARDMILL_BENCH_BEAM": mode}


PEERS = {
    SHARDMILL: Peer("Shardmill prepare", None, None),
    "tfds-beam": Peer(
        "TensorFlow Datasets on Beam, threads", 3.5, "tfds_dataset", env=_on_beam("multi_threading")
    ),
    "tfds-beam-processes": Peer(
        "TensorFlow Datasets on Beam, processes", 3.5, "tfds_dataset", env=_on_beam("multi_processing")
    ),
    "tfds": Peer("TensorFlow Datasets, generator", 2.8, "tfds_dataset"),
    "beam": Peer("Beam by its guides, threads", 3.2, "textbook_beam", env=_on_beam("multi_threading")),
    "beam-processes": Peer(
        "Beam by its guides, processes", 3.2, "textbook_beam", env=_on_beam("multi_processing")
    ),
    "beam-default": Peer("Beam by its guides, as it comes", 3.2, "textbook_beam", env=_on_beam("in_memory")),
    "webdataset": Peer("WebDataset ShardWriter, pool", 1.3, "webdataset_pool", count_tars),
    "mosaicml": Peer(
        "MosaicML MDSWriter, pool", 1.6, "mosaicml_pool", count_mds, requirements="mosaicml.txt"
    ),
}

# The same pool with the decoders that one takes for large photographs.
LARGE_PEERS = {
    f"webdataset-{codec}": Peer(f"WebDataset, pool, {codec}", aim, "webdataset_pool", count_tars, codec=codec)
    for codec, aim in (("pillow-draft", 1.3), ("opencv-reduced", 1.0), ("opencv", 4.0))
}
PEERS |= LARGE_PEERS
