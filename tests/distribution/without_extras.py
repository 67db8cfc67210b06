"""A plugin of pytest for an environment without extras: skips the tests that need another library."""

from __future__ import annotations

import re
from collections.abc import Generator

import pytest

from shardmill.infra.errors import EnvironmentFault

_NOT_COLLECTED = re.compile(r"^E +ModuleNotFoundError: No module named '(?!shardmill)(.+)'$", re.MULTILINE)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.failed and (missing := _NOT_COLLECTED.search(str(report.longrepr))):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {missing[1]} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None and _needs_an_extra(call.excinfo.value):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {call.excinfo.value}")
    return report


def _needs_an_extra(error: BaseException) -> bool:
    if isinstance(error, EnvironmentFault):
        return "pip install 'shardmill[" in error.remedy
    return isinstance(error, ModuleNotFoundError) and not (error.name or "shardmill").startswith("shardmill")
