"""A week in an hour: a schedule over a source that changes, with a random kill every half minute.

make test-week MINUTES=60. At the end nothing is orphaned, stuck, doubled or lost: the newest version has the
records of a fresh prepare of the source, byte for byte, each version follows from the one before it, the
newest one is trained on, and the history tells of all in order. All that hung on a killed process is gone
within ten seconds; on a machine where more processes want to run than it has cores, within as many times
longer as there are such processes for each core (the load average of the last minute).

The environment says more: SEED repeats the same choices, KILL_SECONDS is the time between kills, KILLS goes
on until each kind was killed so often (three times MINUTES at most), and WEEK_RECORD names a file that keeps
the numbers of all runs.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from tests.faults.week import checks
from tests.faults.week.database import KillableDatabase, maybe_database
from tests.faults.week.kills import Kills, add_to_record
from tests.faults.week.platform import Platform, eventually_empty
from tests.faults.week.source import ChangingSource
from tests.prefect_server.server import GONE_SECONDS

NAME = "week"
_MINUTES = float(os.environ.get("MINUTES", "0"))
_KILLS = int(os.environ.get("KILLS") or 0)
_KILL_SECONDS = float(os.environ.get("KILL_SECONDS") or 30)
_LONGEST_SECONDS = _MINUTES * 60 * (3 if _KILLS else 1)
_CHANGE_SECONDS, _REST_SECONDS, _TRAINED_SECONDS = 5.0, 600.0, 900.0
_SETTINGS = ("--set", "failure_budget=0.9", "--set", "runner.block_images=16")
_IDLE_SECONDS, _SELDOM_SECONDS = 600.0, 60.0
_TRAINING = ("ranks.workers=2", "run.devices=cpu:2", "run.epochs=2", "data.image_size=32")


@pytest.mark.slow
@pytest.mark.timeout(_LONGEST_SECONDS + 3600)
@pytest.mark.skipif(_MINUTES == 0, reason="NO TIME: make test-week MINUTES=60 runs it for so long")
def test_a_week_of_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or time.time())
    print(f"\nseed {seed}")
    source = ChangingSource(tmp_path / "source", seed)
    with maybe_database() as database:
        platform = Platform(tmp_path, database and database.url)
        kills = Kills(platform, database, random.Random(seed))
        try:
            platform.start()
            _plan(platform, source)
            with kills.watching():
                _disturb(source, kills)
                print(add_to_record(_record(), seed, _MINUTES, kills.counts))
                left = _left_at_rest(kills, source)
            history = platform.all_runs()
            (tmp_path / "history.json").write_text(json.dumps(history))
            assert not any(left.values()), left
            _prepare(platform, source.folder, tmp_path / "fresh")
            checks.check_versions(platform, NAME)
            checks.check_same(Catalog(platform.root).open(NAME), Catalog(tmp_path / "fresh").open(NAME))
            checks.check_trainings(platform, NAME)
            checks.check_history(history, NAME)
            checks.check_log(platform.home / "logs" / "up.log", kills.counts)
            platform.stop()
            assert platform.remaining(GONE_SECONDS) == [], "nothing is left of it"
            print(f"a process below a victim lived for so many seconds, at most: {kills.in_seconds()}")
            assert kills.late() == [], "what hung on a victim was gone soon"
        finally:
            platform.stop()
            platform.kill()


def _plan(platform: Platform, source: ChangingSource) -> None:
    """Schedule a prepare run every ten seconds, and a training by two ranks on new versions."""
    platform.patiently("schedule", "add", str(source.folder), "--dataset", NAME, "--every", "10s", *_SETTINGS)
    settings = [word for setting in _TRAINING for word in ("--set", setting)]
    platform.patiently(
        "schedule", "add", "--dataset", NAME, "--train", "--every", "20s", "--promote", *settings
    )


def _disturb(source: ChangingSource, kills: Kills) -> None:
    """Change the source and kill processes until the time is over."""
    begun = time.monotonic()
    changed, killed = begun, begun
    while (now := time.monotonic()) < begun + _LONGEST_SECONDS:
        if now > begun + _MINUTES * 60 and kills.least() >= _KILLS:
            break
        if now > changed + _CHANGE_SECONDS:
            changed = now
            _tell(begun, source.change())
        # On a busy machine the platform needs a while until a flow runs again. Some kinds of processes live
        # for a second in each run: they are waited for.
        is_time = now > killed + _KILL_SECONDS and (now > killed + _IDLE_SECONDS or kills.is_at_work())
        waits = now < killed + _KILL_SECONDS + _SELDOM_SECONDS
        if is_time and (kind := kills.one(of_the_least=waits)) is not None:
            killed = now
            _tell(begun, f"killed: {kind}")
        if said := _start_again(kills.platform, kills.database):
            killed = time.monotonic()  # wait half a minute after a restart too
            _tell(begun, said)
        time.sleep(0.2)


def _start_again(platform: Platform, database: KillableDatabase | None) -> str | None:
    """Restart dead services as a system's service manager does; return a description."""
    if database is not None and database.process() is None:
        database.start_again()
        return "the database is started again"
    if not platform.is_up():
        platform.start()
        return "shardmill up is started again"
    return None


def _left_at_rest(kills: Kills, source: ChangingSource) -> dict[str, list[str]]:
    """End the schedule, wait for running jobs and the last training; return what should not be left."""
    platform = kills.platform
    _start_again(platform, kills.database)
    platform.patiently("schedule", "remove", "--dataset", NAME, "--name", "")
    _prepare(platform, source.folder, platform.root)
    untrained = eventually_empty(lambda: checks.untrained(platform, NAME), _TRAINED_SECONDS)
    platform.patiently("schedule", "remove", "--dataset", NAME)
    return {
        "new and not trained on": untrained,
        "under way": platform.comes_to_rest(_REST_SECONDS),
        "places held by runs that have ended": platform.taken_slots(),
        "orphans": eventually_empty(platform.orphans, GONE_SECONDS),
    }


def _prepare(platform: Platform, source: Path, root: Path) -> None:
    platform.patiently("prepare", str(source), "--dataset", NAME, "--root", str(root), "--now", *_SETTINGS)


def _record() -> Path | None:
    path = os.environ.get("WEEK_RECORD")
    return Path(path) if path else None


def _tell(begun: float, what: str) -> None:
    print(f"{time.monotonic() - begun:7.1f} s  {what}", flush=True)
