"""Rules for every test: warnings are errors, and nothing outside the test's own folders is touched.

A warning of a third party that we cannot mend is let through below, one line each, by its exact message
or module and with the reason. A filter that is wider than its reason hides our own mistakes.
"""

from __future__ import annotations

import gc
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import hypothesis
import pytest

# Set before anything imports Prefect or TensorFlow: they read their environment once, at import.
_HOME = tempfile.mkdtemp(prefix="shardmill-tests-")
os.environ["PREFECT_HOME"] = f"{_HOME}/prefect"  # the user's own profiles and database stay out of it
os.environ["SHARDMILL_HOME"] = f"{_HOME}/shardmill"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["HF_HOME"] = f"{_HOME}/hub"  # no token of the user
os.environ["HF_HUB_DISABLE_XET"] = "1"  # a protocol of the Hub's own servers
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Children find tests.samples by it: their working folder is not on their path.
_ROOT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))
for variable in (
    "SHARDMILL_ROOT",
    "SHARDMILL_RUNS",
    "SHARDMILL_EVENTS_FD",
    "SHARDMILL_TURNS",
    "PREFECT_API_URL",
    "PREFECT_PROFILE",
    "HF_ENDPOINT",
    "HF_TOKEN",
):
    os.environ.pop(variable, None)

# A machine that is busy is no defect: speeds are for tests/benchmarks. Continuous integration tries the same
# examples each time, so that a change is never refused for what it did not touch.
hypothesis.settings.register_profile(
    "shardmill",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
hypothesis.settings.load_profile("shardmill")

# The folders whose tests begin, and the steps between their groups: those that wait for processes which they
# start come between those that compute, so that the cores never idle because all tests wait.
_FIRST = {"prefect_server": 3, "browser": 3, "faults": 3, "end_to_end": 1, "training": 1}
# Files that one process runs one after the other, because they share a server, which takes long to start.
_ON_ONE_SERVER = {
    f"test_{subject}"
    for subject in (
        "commands", "deployments", "notify", "page", "promotion", "reaper", "schedules", "shared_server",
        "work_pools",
    )
}  # fmt: skip

# A shell or nohup may start tests with these ignored. Then every process that a test starts ignores them too.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

THIRD_PARTY_WARNINGS: tuple[str, ...] = (
    # huggingface_hub 2.4 uploads files with an argument that its HTTP client gave another name.
    "ignore:Use 'content=<...>' to upload raw bytes/text content:DeprecationWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let the named third-party warnings through."""
    for line in THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


def pytest_unconfigure() -> None:
    """Remove the home of this process of tests."""
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the tests without a search for garbage, and leave out of later ones what is then there.

    Modules and tests, some million objects, stay to the end: to look at them again and again took as long as
    to import them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Give a process whole files, and with ``--dist loadfile`` also all that share a server."""
    from xdist.scheduler import LoadScopeScheduling  # the environment with PyTorch has no xdist

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByGroup(config, log) if config.getoption("dist") == "loadfile" else None


def _group(nodeid: str) -> str:
    """Return the file of a test, or the folder of the files that share a server with it."""
    path = PurePosixPath(nodeid.partition("::")[0])
    folder = path.parent.name
    is_shared = folder == "browser" or (folder == "prefect_server" and path.stem in _ON_ONE_SERVER)
    return str(path.parent if is_shared else path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that processes that share the tests end together."""
    groups = dict.fromkeys(_group(item.nodeid) for item in items)
    turns: dict[str, float] = {}
    reached = dict.fromkeys(_FIRST.values(), 0)
    for folder, step in _FIRST.items():
        for group in groups:
            if folder in group.split("/") and group not in turns:
                turns[group] = reached[step] = reached[step] + step
    items.sort(key=lambda item: turns.get(_group(item.nodeid), math.inf))


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restore signal handlers after each test: a command that was called may leave its own."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _turns() -> Iterator[None]:
    """Forget the file of turns that a command may have named: jobs of one test may overlap."""
    yield
    os.environ.pop("SHARDMILL_TURNS", None)
