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
    publish(folder, coloured({"train": {"dog": 5, "emu": 1}, "test": {"emu": 1}}), name="farm")
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


def test_show_counts_the_records_of_several_data_sets(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "zoo?label == 'cat'; train += farm", "--root", root, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["num_examples"] == 12
    assert found["splits"]["train"]["class_counts"] == {"cat": 4, "dog": 5, "emu": 1}
    assert found["by_data_set"] == {
        "zoo@1?label == 'cat'": {"splits": {"train": 4, "test": 2}, "missing_classes": ["emu"]},
        "farm@1": {"splits": {"train": 6}, "missing_classes": ["cat"]},
    }
    assert cli.run(["show", "zoo; farm", "--root", root]) == 0
    assert "16 records" in capsys.readouterr().out
    assert cli.run(["verify", "zoo; farm", "--root", root]) == 2
    assert "'zoo; farm' are several data sets" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "report", "rollback"])
def test_commands_of_whole_versions_refuse_views(
    root: str, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert cli.run([command, "zoo@1?label == 'cat'", "--root", root]) == 2
    assert "needs a whole version: zoo@1" in capsys.readouterr().err


def test_a_wrong_query_is_one_line_with_a_remedy(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "zoo?lable == 'cat'", "--root", root]) == 2
    assert "did you mean 'label'?" in capsys.readouterr().err
