"""The choice of the reading pipeline: for a stated reason, and part of a run's identity."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.config.data import DataSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.reading.opening import choose_mode
from shardmill.training.run.files.identity import run_name
from tests.samples.datasets.elsewhere import elsewhere
from tests.samples.datasets.published import coloured, publish


@pytest.fixture
def local(tmp_path: Path) -> DatasetVersion:
    return publish(tmp_path, coloured({"train": {"a": 4, "b": 4}}), shards_per_split=2)


@pytest.fixture
def remote(local: DatasetVersion) -> DatasetVersion:
    return elsewhere(local)


def test_files_of_this_machine_are_read_in_the_exact_order(local: DatasetVersion) -> None:
    choice = choose_mode(local, ReadingSettings(), DataSettings())
    assert choice.mode == "indexed"
    assert "files of this machine" in choice.reason


@pytest.mark.parametrize(
    ("reading", "data", "mode", "reason"),
    [
        ({}, {}, "streaming", "not staged"),
        ({"staging_dir": "staged"}, {}, "indexed", "are staged"),
        ({"cache": "disk"}, {}, "indexed", "cached on a disk"),
        ({"cache": "memory"}, {}, "streaming", "not staged"),
        ({}, {"balance": "uniform"}, "indexed", "balance = 'uniform' needs an exact order; .*staging_dir"),
        ({}, {"granularity": "block"}, "indexed", "'block' needs an exact order; each block is a request"),
        ({}, {"class_weights": "balanced"}, "streaming", "not staged"),
        ({"max_bad_records": 2}, {}, "indexed", "max_bad_records = 2 needs reading record by record"),
        ({"mode": "indexed"}, {}, "indexed", "reading.mode = 'indexed'"),
        ({"mode": "streaming"}, {}, "streaming", "reading.mode = 'streaming'"),
    ],
)
def test_shards_in_an_object_store_are_streamed_where_they_can(
    remote: DatasetVersion, reading: dict[str, Any], data: dict[str, Any], mode: str, reason: str
) -> None:
    choice = choose_mode(remote, ReadingSettings(**reading), DataSettings(**data))
    assert choice.mode == mode
    assert re.search(reason, choice.reason)


def test_streaming_is_refused_where_an_exact_order_is_asked_for(local: DatasetVersion) -> None:
    with pytest.raises(ConfigError, match="balance = 'sqrt' needs an exact order") as caught:
        choose_mode(local, ReadingSettings(mode="streaming"), DataSettings(balance="sqrt"))
    assert "auto or indexed" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("overrides", "same"),
    [
        (["reading.ram_budget_bytes=100000000"], True),
        (["reading.cache=memory", "reading.cache_bytes=1000"], True),
        (["reading.mode=indexed", "reading.shuffle_buffer=7"], True),
        (["reading.decoder=tensorflow"], False),
        (["reading.cache=disk", "reading.cache_form=decoded"], False),
        (["reading.mode=streaming"], False),
    ],
)
def test_a_run_is_named_by_what_it_consumes_and_not_by_how(
    local: DatasetVersion, overrides: list[str], same: bool
) -> None:
    assert (name_of(local, *overrides) == name_of(local)) == same


def test_a_stream_is_named_by_its_buffer(local: DatasetVersion) -> None:
    streaming = "reading.mode=streaming"
    plain = name_of(local, streaming)
    assert name_of(local, streaming, "reading.cache=memory") == plain
    for other in ("shuffle_buffer=9", "parallel_shards=2", "ram_budget_bytes=100000000"):
        assert name_of(local, streaming, f"reading.{other}") != plain
    given = name_of(local, streaming, "reading.shuffle_buffer=9")
    assert name_of(local, streaming, "reading.shuffle_buffer=9", "reading.ram_budget_bytes=70000000") == given


def name_of(version: DatasetVersion, *overrides: str) -> str:
    return run_name(load_settings(TrainConfig, section="train", overrides=overrides), version)
