"""The small parts around the job: settings, runners, faults, accounting, watching, words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beam_jobs.accounting import account, check_budget, check_shards, quarantine_reasons
from beam_jobs.config import PrepareConfig, RunnerConfig
from beam_jobs.faults import CarriedFault, carry_faults, recover_fault
from beam_jobs.prepare import build_parser, parse_request
from beam_jobs.report.findings import FILTER_REASONS, explain
from beam_jobs.runners import check_runner, num_workers
from beam_jobs.summary import size, split_table, summary
from beam_jobs.watch import watched
from infra.contract import INPUTS_SCHEMA, Accounting
from infra.errors import AccountingError, ConfigError, DataError, FailureBudgetExceeded, StorageError
from infra.progress import subscribe
from infra.settings import load_settings, validate


def test_what_changes_no_byte_is_not_in_the_digest() -> None:
    base = PrepareConfig().effective()
    assert (
        PrepareConfig(failure_budget=0.5, runner=RunnerConfig(workers=3, block_images=8)).effective() == base
    )
    for override in (
        "seed=1",
        "image.quality=89",
        "splits={train=0.9,test=0.1,validation=0}",
        "filter.min_width=3",
    ):
        assert load_settings(PrepareConfig, section="prepare", overrides=[override]).effective() != base


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"splits": {"train": 0.9}}, "the fractions sum to 1.1, not to 1"),
        ({"image": {"channels": 4}}, "image.channels = 4"),
        ({"shards": {"container": "zip"}}, "shards.container = 'zip'"),
        ({"failure_budget": -1}, "failure_budget = -1"),
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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("DaskRunner", "wrong results"),
        ("dask", "wrong results"),
        ("DirectRunner", "Prism, which downloads"),
        ("direct", "Prism, which downloads"),
        ("PrismRunner", "downloads a program"),
        ("embeded", "did you mean 'embedded'"),
        ("slurm", "there are: embedded"),
    ],
)
def test_runners_that_are_not_ours(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_runner(RunnerConfig(name=name))
    assert says in str(caught.value)


def test_workers() -> None:
    assert num_workers(RunnerConfig(workers=3)) == 3
    assert num_workers(RunnerConfig()) >= 1


def test_faults_survive_a_runner() -> None:
    with pytest.raises(CarriedFault) as caught, carry_faults():
        raise StorageError("disk full: 'a\nb'", "free some")
    relayed = RuntimeError(
        f"Traceback ...\nbeam_jobs.faults.CarriedFault: {caught.value} [while running 'X']"
    )
    fault = recover_fault(relayed)
    assert isinstance(fault, StorageError)
    assert (fault.message, fault.remedy) == ("disk full: 'a\nb'", "free some")
    assert recover_fault(RuntimeError("a defect")) is None
    with pytest.raises(CarriedFault, match="No space"), carry_faults():
        raise OSError(28, "No space left on device")
    with pytest.raises(KeyError), carry_faults():
        raise KeyError("a defect stays what it is")


def inputs(outcomes: list[tuple[str | None, str | None]]) -> pa.Table:
    rows = [
        {"uri": f"{number:03d}", "outcome": outcome, "reason": reason}
        for number, (outcome, reason) in enumerate(outcomes)
    ]
    return pa.Table.from_pylist(rows, INPUTS_SCHEMA)


def test_accounting() -> None:
    table = inputs(
        [("record", None), ("duplicate", "same_bytes"), ("filtered", "ignored")]
        + [("quarantined", "empty")] * 2
        + [("quarantined", "corrupt")] * 3
    )
    found = account(table)
    assert found.model_dump() == {
        "num_inputs": 8, "num_records": 1, "num_duplicates": 1, "num_filtered": 1, "num_quarantined": 5,
    }  # fmt: skip
    assert list(quarantine_reasons(table).items()) == [("corrupt", 3), ("empty", 2)]


@pytest.mark.parametrize(
    "table",
    [
        inputs([("record", None), (None, None)]),
        inputs([("lost", None)]),
        pa.concat_tables([inputs([("record", None)])] * 2),
    ],
)
def test_accounts_that_do_not_add_up(table: pa.Table) -> None:
    with pytest.raises(AccountingError):
        account(table)


def accounting(records: int, filtered: int, quarantined: int) -> Accounting:
    return Accounting(
        num_inputs=records + filtered + quarantined,
        num_records=records,
        num_duplicates=0,
        num_filtered=filtered,
        num_quarantined=quarantined,
    )


@pytest.mark.parametrize(
    ("found", "budget", "error"),
    [
        (accounting(99, 0, 1), 0.01, None),
        (accounting(98, 0, 2), 0.01, FailureBudgetExceeded),
        (accounting(99, 1000, 2), 0.01, FailureBudgetExceeded),  # filtered inputs do not dilute
        (accounting(1, 0, 0), 0.0, None),
        (accounting(0, 0, 3), 1.0, DataError),
        (accounting(0, 3, 0), 0.0, DataError),
    ],
)
def test_budget(found: Accounting, budget: float, error: type[Exception] | None) -> None:
    if error is None:
        check_budget(found, {}, budget, "rows.parquet")
        return
    with pytest.raises(error, match="nothing was published") as caught:
        check_budget(found, {"empty": 2}, budget, "rows.parquet")
    assert type(caught.value) is error
    assert "rows.parquet" in str(caught.value)


def test_shards_must_hold_the_records() -> None:
    with pytest.raises(AccountingError, match="the shards hold 0 records"):
        check_shards([], accounting(3, 0, 0))


def test_watching_reports_begin_progress_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    from beam_jobs import watch

    monkeypatch.setattr(watch, "_SECONDS", 0.01)
    events: list[dict[str, Any]] = []
    counts = iter([2, 4])
    unsubscribe = subscribe(lambda event: events.append(dict(event)))
    try:
        with watched("encode", 10, lambda: next(counts, 10)):
            while sum(event["event"] == "progress" for event in events) < 2:
                pass
    finally:
        unsubscribe()
    assert (events[0]["event"], events[0]["done"]) == ("stage", 2)
    assert (events[1]["done"], events[-1]["done"], events[-1]["total"]) == (4, 10, 10)


def test_the_flag_wins_over_json_and_json_over_set() -> None:
    argv = ["src", "--dataset", "d", "--set", "seed=1", "--set", "image.quality=50"]
    argv += ["--config-json", json.dumps({"seed": 2, "failure_budget": 0.2}), "--failure-budget", "0.3"]
    config = parse_request(build_parser().parse_args(argv)).config
    assert (config.seed, config.image.quality, config.failure_budget) == (2, 50, 0.3)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_size(num_bytes: int, text: str) -> None:
    assert size(num_bytes) == text


def test_a_split_is_counted_in_words_in_even_columns() -> None:
    splits = {"train": {"num_examples": 1200, "num_shards": 2, "num_bytes": 5 << 20}}
    splits["test"] = {"num_examples": 1, "num_shards": 1, "num_bytes": 9}
    assert list(split_table(splits)) == [
        "  train          1,200 examples      2 shards     5.0 MiB",
        "  test                1 example       1 shard         9 B",
    ]


def test_the_summary_counts_in_words_and_tells_of_crossing_duplicates() -> None:
    outcome = {
        "dataset": "d", "version": 1, "unchanged": True, "source": "/s", "report": None, "splits": {},
        "num_inputs": 1, "num_records": 1, "num_duplicates": 0, "num_filtered": 0, "num_quarantined": 0,
        "quarantine": {}, "num_label_conflicts": 1, "num_cross_split_duplicates": 2,
    }  # fmt: skip
    _, counts, conflicts, crossing = summary(outcome)
    assert counts == "  1 input = 1 record + 0 duplicates + 0 filtered + 0 quarantined"
    assert "1 image has the same bytes under different labels" in conflicts
    assert "2 duplicates repeat records of another given split" in crossing


def test_the_summary_tells_of_groups_and_leaks() -> None:
    outcome = {
        "dataset": "d", "version": 1, "unchanged": True, "source": "/s", "report": None, "splits": {},
        "num_inputs": 1, "num_records": 1, "num_duplicates": 0, "num_filtered": 0, "num_quarantined": 0,
        "quarantine": {}, "num_label_conflicts": 0, "num_cross_split_duplicates": 0,
        "near_duplicates": {"num_records": 5, "num_groups": 2, "num_conflicts": 1},
        "leaks": {"near_duplicate_groups": 1, "key_groups": 1, "dropped_from_train": 1},
    }  # fmt: skip
    _, _, alike, leaks = summary(outcome)
    assert "5 records look the same, in 2 groups, 1 group under several labels" in alike
    assert "2 groups are divided among the splits; 1 record of train left out" in leaks


def test_every_reason_is_explained_in_the_report_and_the_guide() -> None:
    root = Path(__file__).parents[3]
    places = [*(root / "infra/codecs").rglob("*.py"), *(root / "beam_jobs").rglob("*.py")]
    raised = r'(?:ImageRejected|SourceFault|ImageFiltered)\(\s*"(\w+)"|QUARANTINED, (?:stage, )?"(\w+)"'
    found = {
        name for path in places for pair in re.findall(raised, path.read_text()) for name in pair if name
    }
    assert {"empty", "too_long", "vanished", "unprocessable", "no_class", "aspect"} <= found
    guide = (root / "docs/recover-from-failures.md").read_text()
    for reason in found:
        assert explain(reason)[1] != explain("not known")[1], reason
        assert reason in FILTER_REASONS or f"| `{reason}` | {explain(reason)[0]} |" in guide, reason


def python(script: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)


def test_nothing_heavy_loads_for_settings_or_the_command_line() -> None:
    script = (
        "import sys, beam_jobs.config, beam_jobs.prepare\n"
        "heavy = ('apache_beam', 'tensorflow', 'prefect', 'cv2', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = python(script)
    assert done.stdout.strip() in ("[]", "['numpy']"), "numpy comes with pyarrow"


def test_beam_is_not_loaded_to_find_nothing_to_do() -> None:
    script = "import sys, beam_jobs.job; print('apache_beam' in sys.modules)"
    done = python(script)
    assert done.stdout.strip() == "False"
