"""The accounting of all inputs, and the failure budget."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shardmill.beam_jobs.publish.accounting import (
    Counts,
    account,
    check_budget,
    check_shards,
    quarantine_reasons,
)
from shardmill.infra.errors import AccountingError, DataError, FailureBudgetExceeded
from shardmill.infra.format.contract import INPUTS_SCHEMA, Accounting


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
        check_budget(Counts(found, {}), budget, "rows.parquet")
        return
    with pytest.raises(error, match="nothing was published") as caught:
        check_budget(Counts(found, {"empty": 2}), budget, "rows.parquet")
    assert type(caught.value) is error
    assert "rows.parquet" in str(caught.value)


def test_shards_must_hold_the_records() -> None:
    with pytest.raises(AccountingError, match="the shards hold 0 records"):
        check_shards([], accounting(3, 0, 0))
