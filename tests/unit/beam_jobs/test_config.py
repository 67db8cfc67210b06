"""The settings of prepare: which change bytes, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.prepare import build_parser, parse_request
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import load_settings, validate


def test_what_changes_no_byte_is_not_in_the_digest() -> None:
    base = PrepareConfig().effective()
    assert (
        PrepareConfig(failure_budget=0.5, runner=RunnerConfig(processes=3, block_images=8)).effective()
        == base
    )
    for override in (
        "seed=1",
        "image.quality=89",
        "splits={train=0.9,test=0.1,validation=0}",
        "filter.min_width=3",
        'source={kind="table", table={file="labels.csv"}}',
    ):
        assert load_settings(PrepareConfig, section="prepare", overrides=[override]).effective() != base


def test_a_new_kind_of_source_leaves_the_digests_of_other_kinds_as_they_were() -> None:
    assert PrepareConfig().effective()["source"] == {"kind": "image_folder", "layout": "auto"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"splits": {"train": 0.9}}, "the fractions sum to 1.1, not to 1"),
        ({"image": {"channels": 0}}, "image.channels = 0"),
        ({"shards": {"container": "zip"}}, "shards.container = 'zip'"),
        ({"failure_budget": -1}, "failure_budget = -1"),
        (
            {"source": {"kind": "table"}},
            r"kind table needs the path of the table \(give it: --set source.table",
        ),
        ({"source": {"table": {"file": "t.csv"}}}, "kind image_folder reads no table"),
        ({"source": {"table": {"delimiter": '"'}}}, "must be an ASCII character, and neither a quote"),
        ({"source": {"table": {"encoding": "utf-9"}}}, "no encoding that Python knows"),
        ({"source": {"table": {"path": "image"}}}, "unknown key 'source.table.path'"),
        ({"groups": {"pattern": "a(b"}}, "groups.pattern = 'a\\(b': not a regular expression"),
        ({"groups": {"pattern": "ab"}}, "groups.pattern = 'ab': has no parenthesis"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        validate(PrepareConfig, values)


def test_every_setting_is_described() -> None:
    def undescribed(schema: dict[str, Any], where: str) -> list[str]:
        return [
            f"{where}.{name}"
            for name, field in schema.get("properties", {}).items()
            if not field.get("description")
        ]

    schema = PrepareConfig.model_json_schema()
    found = undescribed(schema, "prepare")
    for name, part in schema["$defs"].items():
        found += undescribed(part, name)
    assert found == []


def test_the_old_name_of_processes_is_refused_with_the_new_one() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(PrepareConfig, section="prepare", overrides=["runner.workers=3"])
    assert "unknown key 'runner.workers'" in caught.value.message
    assert caught.value.remedy == "did you mean 'runner.processes'?"


def test_the_flag_wins_over_json_and_json_over_set() -> None:
    argv = ["src", "--dataset", "d", "--set", "seed=1", "--set", "image.quality=50"]
    argv += ["--config-json", json.dumps({"seed": 2, "failure_budget": 0.2}), "--failure-budget", "0.3"]
    config = parse_request(build_parser().parse_args(argv)).config
    assert (config.seed, config.image.quality, config.failure_budget) == (2, 50, 0.3)
