"""What holds for every test: warnings are errors, and nothing outside the test's own folders is touched.

A warning of a third party that we cannot mend is let through below, one line each, by its exact message
or module and with the reason. A filter that is wider than its reason hides our own mistakes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import hypothesis
import pytest

# Set before anything imports Prefect or TensorFlow: they read their environment once, at import.
_HOME = tempfile.mkdtemp(prefix="shardmill-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ["PREFECT_HOME"] = f"{_HOME}/prefect"  # the user's own profiles and database stay out of it
os.environ["SHARDMILL_HOME"] = f"{_HOME}/shardmill"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
for variable in (
    "SHARDMILL_ROOT",
    "SHARDMILL_RUNS",
    "SHARDMILL_EVENTS_FD",
    "PREFECT_API_URL",
    "PREFECT_PROFILE",
):
    os.environ.pop(variable, None)

# The fixture of a running `shardmill up`, shared by tests/prefect_server and tests/browser.
pytest_plugins = ["tests.prefect_server.server"]

# A machine that is busy is no defect: speeds are for tests/benchmarks.
hypothesis.settings.register_profile("shardmill", deadline=None)
hypothesis.settings.load_profile("shardmill")

THIRD_PARTY_WARNINGS: tuple[str, ...] = ()


def pytest_configure(config: pytest.Config) -> None:
    """Let the named third-party warnings through."""
    for line in THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
