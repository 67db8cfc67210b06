"""The encode stage counts the files that are done."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from shardmill.beam_jobs.encode.blocks import Block
from shardmill.beam_jobs.encode.stage import count_files

BLOCKS = [Block("a", 0, 100), Block("b", 100, 30), Block("c", 130, 70)]


@pytest.mark.parametrize(
    ("finished", "in_progress", "files"),
    [
        ((), {}, 0),
        (("b",), {}, 30),
        (("b",), {0: 40, 2: 1}, 71),
        (("a", "b"), {0: 100, 2: 7}, 137),  # a process keeps its last number until it begins another
        (("a", "b", "c", "of another run"), {}, 200),
    ],
)
def test_files_of_finished_and_of_begun_blocks_count_once(
    finished: Collection[str], in_progress: Mapping[int, int], files: int
) -> None:
    assert count_files(BLOCKS, finished, in_progress) == files
