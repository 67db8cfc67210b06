"""The cases: what is prepared, with which settings, and what is done to the dataset afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.golden import sources
from tests.end_to_end.golden.sources import Files

DATASET = "golden"
_REPOSITORY = Path(__file__).parents[3]


@dataclass(frozen=True)
class Step:
    """One command of a case.

    Attributes:
        name: the key of the step in the record.
        words: as after ``python -m``; ``{source}`` and ``{root}`` stand for the folders.
        files: makes the files that the source holds from this step on; None leaves the source alone.
    """

    name: str
    words: tuple[str, ...]
    files: Callable[[], Files] | None = None


@dataclass(frozen=True)
class Case:
    """A source and the commands that make a dataset of it.

    Attributes:
        steps: the commands, in order. Every version is described after each of them.
        photographs: the folder in ``shared/data`` that is the source; None if the steps write the source.
        rows_only: record the counts, the outcome of each input, and three digests over all shards, indexes
            and inputs. An input that changes its outcome may move others to other shards; here it changes
            its own row and these digests only.
    """

    steps: tuple[Step, ...]
    photographs: str | None = None
    rows_only: bool = False


def shared_folder(name: str) -> Path:
    """The folder ``shared/data/<name>`` beside the repository.

    A worktree may lie deeper, so the folders further up are searched too. If there is none, the path beside
    the repository is returned.
    """
    found = [parent / "shared" / "data" / name for parent in _REPOSITORY.parents]
    return next((path for path in found if path.is_dir()), found[0])


def prepare(files: Callable[[], Files] | None = None, name: str = "prepare", **settings: Any) -> Step:
    """Make the step that prepares the source; ``settings`` are tables of the configuration."""
    words = ("shardmill.beam_jobs.prepare", "{source}", "--dataset", DATASET, "--root", "{root}")
    given = json.dumps({"failure_budget": 1, **settings})
    return Step(name, (*words, "--config-json", given), files)


def _command(name: str, *more: str) -> Step:
    return Step(name, ("shardmill.flows.cli", name, DATASET, "--root", "{root}", *more))


def _one(files: Callable[[], Files], **settings: Any) -> Case:
    return Case((prepare(files, **settings),))


CASES = {
    "defaults": _one(sources.mixed),
    "gzip": _one(
        sources.mixed,
        image={"resize": "long", "size": 96, "quality": 75},
        shards={"container": "gzip", "num_shards": 2},
    ),
    "png": _one(sources.mixed, image={"encoding": "png", "size": 64, "resample": "lanczos"}),
    "webp": _one(sources.mixed, image={"encoding": "webp", "size": 64, "quality": 80}, seed=7),
    "raw": _one(sources.mixed, image={"encoding": "raw", "size": 32}, shards={"shard_bytes": 40_000}),
    "crop": _one(
        sources.mixed, image={"resize": "crop", "height": 60, "width": 90}, shards={"container": "none"}
    ),
    "pad": _one(
        sources.mixed,
        image={"resize": "pad", "height": 64, "width": 96, "upscale": True, "background": "#204060"},
    ),
    "grey": _one(sources.mixed, image={"channels": 1, "size": 64}, groups={"pattern": r"/(p\d+)-"}),
    "passthrough": _one(sources.mixed, image={"resize": "none", "passthrough": True}),
    "filtered": _one(
        sources.mixed,
        image={"allow_truncated": True, "size": 64},
        filter={"min_width": 20, "min_height": 20, "max_aspect": 4, "classes": ["cat", "owl"]},
        groups={"near_duplicates": False},
        splits={"train": 0.5, "validation": 0.25, "test": 0.25},
    ),
    "given_splits": _one(sources.given, image={"size": 64}, shards={"num_shards": 2}),
    "no_leaks": _one(
        sources.given,
        image={"size": 64},
        groups={"pattern": r"/(p\d+)-", "max_distance": 8, "leakage": "drop-from-train"},
    ),
    "grown": Case(
        (
            prepare(sources.first, "prepare 1", image={"size": 64}, shards={"num_shards": 2}),
            prepare(sources.second, "prepare 2", image={"size": 64}, shards={"num_shards": 2}),
            prepare(sources.third, "prepare 3", image={"size": 64}, shards={"num_shards": 2}),
            _command("compact"),
            _command("purge", "--source", "ant/2.jpg", "--source", "cow/1.png", "--apply"),
        )
    ),
    "clothing": Case((prepare(),), photographs="clothing"),
    "odd": Case((prepare(shards={"container": "none"}),), photographs="odd", rows_only=True),
}
