"""The table of the balance of the ranks, and its warnings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.training.balance import main
from shardmill.training.results.run_files.rank_balance import (
    BALANCE_FILE,
    RankBalance,
    balance_of,
    read_balance,
)


def line(*ranks: dict[str, Any]) -> dict[str, Any]:
    """A line of the file, of an epoch in which a step took 100 ms."""
    plain = {
        "device": "CPU, 1 threads",
        "rows": 8,
        "class_counts": [400, 400],
        "num_steps": 100,
        "step_seconds": 0.1,
        "input_seconds": 0.001,
        "compute_seconds": 0.09,
    }
    rows = [{**plain, "rank": number, **changes} for number, changes in enumerate(ranks)]
    for row in rows:
        row["examples"] = sum(row["class_counts"])
    return {"epoch": 3, "classes": ["a", "b"], "ranks": rows}


def written(folder: Path, *lines: str) -> Path:
    """A run with these lines."""
    path = folder / "runs" / "photos-v1-0" / BALANCE_FILE
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{one}\n" for one in lines))
    (folder / "runs" / "photos-v1-0" / "run.json").write_text("{}")
    return folder / "runs" / "photos-v1-0"


def test_even_ranks_give_no_warning() -> None:
    found = balance_of(line({}, {}))
    assert found.warnings == ()
    assert [row.share for row in found.ranks] == [0.5, 0.5]
    assert found.ranks[0].waiting_seconds == pytest.approx(0.009)
    assert found.class_counts() == {"a": [400, 400], "b": [400, 400]}


@pytest.mark.parametrize(
    ("ranks", "warning"),
    [
        ([{"rows": 24}, {"compute_seconds": 0.02}], "rank 1 waits 79% of each step for others, rank 0 9%"),
        (
            [{"waited_seconds": 0.03}, {"waited_seconds": 0.001}],
            "rank 0 waits 30% of each step for others, rank 1 1%",
        ),
        ([{}, {"input_seconds": 0.06}], "rank 1 waits 60% of each step for its data"),
        ([{"class_counts": [600, 200]}, {}], "the classes of rank 0 differ .* in 12% of its examples"),
    ],
)
def test_uneven_ranks_give_a_warning(ranks: list[dict[str, Any]], warning: str) -> None:
    found = balance_of(line(*ranks))
    assert any(re.match(warning, text) for text in found.warnings), found.warnings


def test_few_examples_differ_by_chance() -> None:
    found = balance_of(line({"class_counts": [6, 4]}, {"class_counts": [4, 6]}))
    assert found.ranks[0].class_skew == pytest.approx(0.1)
    assert found.warnings == ()


def test_few_steps_say_little() -> None:
    assert balance_of(line({"num_steps": 19}, {"input_seconds": 0.06})).warnings == ()


def test_waiting_is_unknown_without_a_measured_speed() -> None:
    found = balance_of(line({"compute_seconds": None}, {"compute_seconds": None}))
    assert [row.waiting_seconds for row in found.ranks] == [None, None]
    assert found.warnings == ()


def test_the_last_epoch_counts(tmp_path: Path) -> None:
    run = written(tmp_path, json.dumps({**line({}), "epoch": 1}), json.dumps(line({}, {})))
    found = read_balance(run)
    assert isinstance(found, RankBalance)
    assert (found.epoch, len(found.ranks)) == (3, 2)


def test_a_run_without_ranks_has_no_balance(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"has no logs/ranks/balance\.jsonl"):
        read_balance(tmp_path)


def test_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match=r"balance\.jsonl cannot be read"):
        read_balance(written(tmp_path, '{"epoch": 1}'))


def test_the_command_prints_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(tmp_path, json.dumps(line({}, {"input_seconds": 0.06})))
    assert main([str(run)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "epoch 3"
    assert out[1].split()[:4] == ["rank", "device", "rows", "share"]
    assert out[3].endswith("0.0 ms")
    assert out[4].startswith("warning: rank 1 waits 60%")
    assert main([run.name, "--runs", str(run.parent), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["class_counts"] == {"a": [400, 400], "b": [400, 400]}
    assert found["ranks"][1]["input_seconds"] == 0.06
