"""What a process of prepare loads, and what it keeps: told by processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from beam_jobs.loading import meanwhile

HEAVY = ("apache_beam", "cv2", "jinja2", "numpy", "pyarrow", "PIL", "pydantic")


def told_by(code: str) -> object:
    """What a new interpreter prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("modules", "allowed"),
    [
        # the process that waits for the job, until it has started it
        ("beam_jobs.prepare, beam_jobs.summary, beam_jobs.forecast", set()),
        # and from then on
        ("beam_jobs.guard.supervise, beam_jobs.request", {"pydantic"}),
        # a job that has nothing to do
        ("beam_jobs.job", {"cv2", "numpy", "pyarrow", "PIL", "pydantic"}),
    ],
)
def test_no_more_is_loaded_than_is_needed(modules: str, allowed: set[str]) -> None:
    loaded = told_by(f"import json, sys, {modules}; print(json.dumps(list(sys.modules)))")
    assert isinstance(loaded, list)
    assert "beam_jobs" in loaded
    assert set(HEAVY) & set(loaded) <= allowed


def test_arrow_keeps_no_reserve_of_its_own() -> None:
    code = (
        "import json; from beam_jobs.memory import choose_allocators, give_back; choose_allocators(); "
        "import pyarrow; give_back(); print(json.dumps(pyarrow.default_memory_pool().backend_name))"
    )
    assert told_by(code) == "system"


def test_the_search_for_garbage_goes_on_after_loading() -> None:
    code = (
        "import gc, json; from beam_jobs.loading import quick_loading\n"
        "with quick_loading():\n    inside = gc.isenabled()\n"
        "print(json.dumps([inside, gc.isenabled(), gc.get_freeze_count() > 0]))"
    )
    assert told_by(code) == [False, True, True]


def test_the_embedded_runner_loads_beam_without_what_it_never_needs() -> None:
    code = (
        "import json, sys; from beam_jobs.loading import lean_beam\n"
        "with lean_beam():\n    import beam_jobs.pipeline\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "never = {'beartype', 'boto3', 'bson', 'httplib2', 'pymongo', 'pyparsing', 'yaml'}\n"
        "import beartype.door, bson, httplib2, yaml\n"  # which Beam's package brings along
        "right = [beartype.door.is_subhint(bool, int), beartype.door.is_subhint(str, int)]\n"
        "from apache_beam.internal import http_client\n"
        "print(json.dumps([sorted(loaded & never), httplib2.Http.__name__, yaml.safe_load('[1]'), right,\n"
        "    http_client.proxy_info_from_environment_var('http_proxy')]))"
    )
    assert told_by(code) == [[], "Http", [1], [True, False], None]


def test_a_pipeline_ends_when_its_work_does() -> None:
    code = (
        "import json; from beam_jobs.config import RunnerConfig; from beam_jobs.runners import load_beam\n"
        "load_beam(RunnerConfig())\n"
        "from apache_beam.runners.worker.statesampler import StateSampler\n"
        "print(json.dumps(StateSampler('a bundle', None).sampling_period_ms))"
    )
    assert told_by(code) == 5


@pytest.mark.parametrize(("after_seconds", "block_seconds", "loaded"), [(0.0, 0.3, 1), (30.0, 0.0, 0)])
def test_what_is_loaded_meanwhile_is_there_when_the_block_ends(
    after_seconds: float, block_seconds: float, loaded: int
) -> None:
    done: list[int] = []

    def load() -> None:
        time.sleep(2 * block_seconds)
        done.append(1)

    with meanwhile(load, after_seconds):
        time.sleep(block_seconds)
    assert len(done) == loaded


def test_what_is_loaded_when_used_is_the_real_thing() -> None:
    code = (
        "import json, sys; from beam_jobs.loading import _LoadedWhenUsed\n"
        "sys.modules['colorsys'] = stand_in = _LoadedWhenUsed('colorsys')\n"
        "import colorsys\n"
        "before = sys.modules['colorsys'] is stand_in\n"
        "print(json.dumps([before, colorsys.ONE_THIRD, sys.modules['colorsys'] is not stand_in]))"
    )
    assert told_by(code) == [True, 1 / 3, True]
