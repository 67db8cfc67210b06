"""Commands on views: what they print, and what they refuse."""

from __future__ import annotations

import json

import pytest

from shardmill.flows import cli
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"cat": 4, "dog": 3}, "test": {"cat": 2}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("views")
    publish(folder, coloured(COUNTS), name="zoo")
    return str(folder)


def test_show_counts_the_records_of_a_view(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "zoo?label%20==%20'cat'", "--root", root, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["reference"] == "zoo@1?label == 'cat'"
    assert found["num_examples"] == 6
    assert found["splits"]["train"] == {"num_examples": 4, "of_examples": 7, "class_counts": {"cat": 4}}
    assert cli.run(["show", 'zoo?label=="cat"', "--root", root]) == 0
    printed = capsys.readouterr().out
    assert "zoo@1 where label == 'cat'" in printed
    assert "6 records of 9" in printed


@pytest.mark.parametrize("command", ["verify", "report", "rollback"])
def test_commands_of_whole_versions_refuse_views(
    root: str, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert cli.run([command, "zoo@1?label == 'cat'", "--root", root]) == 2
    assert "needs a whole version: zoo@1" in capsys.readouterr().err


def test_a_wrong_query_is_one_line_with_a_remedy(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "zoo?lable == 'cat'", "--root", root]) == 2
    assert "did you mean 'label'?" in capsys.readouterr().err
