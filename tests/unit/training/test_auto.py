"""Which pipeline reads: chosen for a stated reason, and part of what a run is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infra.catalog import DatasetVersion
from infra.errors import ConfigError
from infra.storage import Storage
from tests.samples.published import coloured, publish
from training.config.data import DataSettings
from training.config.reading import ReadingSettings
from training.pipelines.auto import choose_mode


@pytest.fixture
def local(tmp_path: Path) -> DatasetVersion:
    return publish(tmp_path, coloured({"train": {"a": 4, "b": 4}}), shards_per_split=2)


class ElsewhereStorage(Storage):
    """A folder that is not of this machine's own filesystem."""

    is_local = False  # type: ignore[assignment]


@pytest.fixture
def remote(local: DatasetVersion) -> DatasetVersion:
    there = local.storage
    return DatasetVersion(ElsewhereStorage(there._fs, there._root, "s3://bucket/sample"), local.manifest)


def test_files_of_this_machine_are_read_in_the_exact_order(local: DatasetVersion) -> None:
    choice = choose_mode(local, ReadingSettings())
    assert choice.mode == "indexed"
    assert "files of this machine" in choice.reason


@pytest.mark.parametrize(
    ("reading", "data", "options", "mode", "reason"),
    [
        ({}, {}, {}, "streaming", "not staged"),
        ({}, {}, {"staged": True}, "indexed", "are staged"),
        ({"cache": "disk"}, {}, {}, "indexed", "cached on a disk"),
        ({"cache": "memory"}, {}, {}, "streaming", "not staged"),
        (
            {},
            {"balance": "uniform"},
            {},
            "indexed",
            "balance = 'uniform' needs an exact order; .*staging_dir",
        ),
        ({}, {"granularity": "block"}, {}, "indexed", "granularity = 'block' needs an exact order"),
        ({}, {"class_weights": "balanced"}, {}, "streaming", "not staged"),
        ({}, {"class_weights": "balanced"}, {"num_workers": 2}, "indexed", "class_weights over several"),
        ({}, {}, {"num_workers": 3}, "indexed", "2 shards cannot be divided among 3 workers"),
        ({"mode": "indexed"}, {}, {}, "indexed", "reading.mode = 'indexed'"),
        ({"mode": "streaming"}, {}, {}, "streaming", "reading.mode = 'streaming'"),
    ],
)
def test_shards_in_an_object_store_are_streamed_where_they_can(
    remote: DatasetVersion,
    reading: dict[str, Any],
    data: dict[str, Any],
    options: dict[str, Any],
    mode: str,
    reason: str,
) -> None:
    choice = choose_mode(remote, ReadingSettings(**reading), DataSettings(**data), **options)
    assert choice.mode == mode
    assert re.search(reason, choice.reason)


def test_streaming_is_refused_where_an_exact_order_is_asked_for(local: DatasetVersion) -> None:
    with pytest.raises(ConfigError, match="balance = 'sqrt' needs an exact order") as caught:
        choose_mode(local, ReadingSettings(mode="streaming"), DataSettings(balance="sqrt"))
    assert "auto or indexed" in str(caught.value.remedy)
