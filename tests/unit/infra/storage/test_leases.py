"""Leases in folders and object stores: exclusion, dead holders, and the loss of a lease."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import LockedError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.leases import LeaseTimes, lease
from shardmill.infra.storage.locking import HolderFile, HolderList, ListChanged, Lock, Written
from shardmill.infra.storage.objects import retries
from shardmill.infra.storage.objects.conditional import Bucket, HolderObject
from tests.samples.stores.faulty_proxy import faulty_proxy
from tests.samples.stores.object_store import KEY, SECRET, ObjectStore
from tests.samples.waiting import eventually

SHORT = LeaseTimes(lease_seconds=1.5, renew_seconds=0.2, margin_seconds=1.0)
# Writes a file before and after it may have lost its lock; its input tells it to go on.
HOLDER = """
import sys
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.leases import LeaseTimes
storage = Storage.at(sys.argv[1])
with storage.exclusive_lock("lock", times=LeaseTimes(*map(float, sys.argv[2:]))):
    print("held", flush=True)
    sys.stdin.readline()
    storage.create_if_absent("manifests/000001.json", b"holder")
"""


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of an empty folder, on this machine or in an object store."""
    if request.param == "folder":
        return str(tmp_path / "place")
    store: ObjectStore = request.getfixturevalue("store")
    return store.location(f"lease-{uuid.uuid4().hex}", credentials=f"{KEY}:{SECRET}@")


def list_at(place: str) -> HolderList:
    if "://" not in place:
        return HolderFile(Path(place) / "lock")
    key = f"{place.partition('?')[0].rpartition('/')[2]}/lock"
    return HolderObject(Bucket(place, None).objects("", "s3://storage"), key)


def hold(
    holders: HolderList, *, exclusive: bool = True, times: LeaseTimes = SHORT
) -> AbstractContextManager[Lock]:
    return lease(holders, exclusive=exclusive, purpose="a test", name="lock", times=times)


def is_lost(lock: Lock) -> bool:
    try:
        lock.ensure_held()
    except LockedError as error:
        return "was lost" in error.message
    return False


def entries(holders: HolderList) -> list[dict[str, Any]]:
    found = holders.read()
    assert found is not None
    listed: list[dict[str, Any]] = json.loads(found.data)["holders"]
    return listed


def take_away(holders: HolderList) -> None:
    """Remove all entries, as another process does that finds them expired."""
    for _ in range(50):  # a renewal may change the list first
        with suppress(ListChanged):
            holders.write(b'{"holders": []}', holders.read())
            return
    raise AssertionError("the list changes all the time")


@contextmanager
def holder(place: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock."""
    times = (SHORT.lease_seconds, SHORT.renew_seconds, SHORT.margin_seconds)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place, *map(str, times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_lock_has_one_exclusive_holder_or_several_that_share_it(place: str) -> None:
    one, other = Storage.at(place), Storage.at(place)
    with one.exclusive_lock("lock", "a test", times=SHORT) as lock:
        lock.ensure_held()
        with pytest.raises(LockedError, match=r"\(pid \d+ on .*\) is busy with a test; it locks .*/lock"):
            other.exclusive_lock("lock", "a test", times=SHORT).__enter__()
        with pytest.raises(LockedError):
            other.shared_lock("lock", times=SHORT).__enter__()
    with (
        one.shared_lock("lock", times=SHORT),
        other.shared_lock("lock", times=SHORT),
        pytest.raises(LockedError),
    ):
        other.exclusive_lock("lock", times=SHORT).__enter__()
    with other.exclusive_lock("lock", times=SHORT):
        pass


def test_many_processes_change_the_list_of_holders_at_once(place: str) -> None:
    holders = list_at(place)
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(hold(list_at(place), exclusive=False))
        time.sleep(3 * SHORT.renew_seconds)
        assert len(entries(holders)) == 5
    assert entries(holders) == []


def test_the_lock_of_a_killed_process_of_this_machine_is_free_at_once(place: str) -> None:
    storage = Storage.at(place)
    with holder(place) as process:
        with pytest.raises(LockedError, match=f"pid {process.pid} on"):
            storage.exclusive_lock("lock", times=SHORT).__enter__()
        process.kill()
        process.wait()
        with storage.exclusive_lock("lock", times=LeaseTimes()):
            pass


def test_a_stopped_holder_that_wakes_up_publishes_nothing_over_the_winner(place: str) -> None:
    storage = Storage.at(place)
    with ExitStack() as held:

        def take() -> bool:
            with suppress(LockedError):
                held.enter_context(storage.exclusive_lock("lock", times=SHORT))
                return True
            return False

        process = held.enter_context(holder(place))
        os.kill(process.pid, signal.SIGSTOP)
        assert not take(), "its lease lasts"
        deadline = time.monotonic() + 60
        while not take():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(b"\n", timeout=60)
        assert process.returncode != 0
        assert b"another process took it" in errors
        assert not storage.exists("manifests"), "and it published nothing"


def test_a_stopped_holder_that_nobody_replaced_goes_on(place: str) -> None:
    with holder(place) as process:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(SHORT.lease_seconds + SHORT.margin_seconds)
        os.kill(process.pid, signal.SIGCONT)
        _, errors = process.communicate(b"\n", timeout=60)
        assert process.returncode == 0, errors
    assert Storage.at(place).read_bytes("manifests/000001.json") == b"holder"


class OtherClock:
    """A list of holders in a store whose clock is wrong."""

    def __init__(self, holders: HolderList, seconds: float) -> None:
        self._holders, self.seconds = holders, seconds

    def read(self) -> Written | None:
        found = self._holders.read()
        return None if found is None else replace(found, modified_at=found.modified_at + self.seconds)

    def write(self, data: bytes, found: Written | None) -> None:
        self._holders.write(data, found)

    def now(self) -> float:
        return self._holders.now() + self.seconds


@pytest.mark.parametrize("wrong_by", [-86400.0, 86400.0])
def test_only_the_clock_of_the_store_counts(place: str, wrong_by: float) -> None:
    holders = OtherClock(list_at(place), wrong_by)
    entry = {"id": "other", "exclusive": True, "host": "elsewhere", "machine": "another", "pid": 7}
    entry |= {"started": 1}
    data = json.dumps({"holders": [entry], "written_by": "other"}).encode()
    holders.write(data, None)
    with pytest.raises(LockedError, match="pid 7 on elsewhere") as caught:
        hold(holders).__enter__()
    assert "if it is dead, its lock ends in" in str(caught.value)
    time.sleep(SHORT.lease_seconds + 2 * SHORT.margin_seconds)
    with hold(holders):
        assert [entry["machine"] != "another" for entry in entries(holders)] == [True]


def test_an_entry_is_as_old_as_its_last_renewal_not_as_the_list(place: str) -> None:
    holders = list_at(place)
    dead = {
        "id": "dead",
        "exclusive": False,
        "host": "elsewhere",
        "machine": "another",
        "pid": 7,
        "started": 1,
    }
    holders.write(json.dumps({"holders": [dead], "written_by": "dead"}).encode(), None)
    with hold(holders, exclusive=False):  # renews itself, and with it the list, all the time
        time.sleep(SHORT.lease_seconds + 2 * SHORT.margin_seconds)
    with hold(holders):
        assert len(entries(holders)) == 1


def test_a_lock_that_is_held_is_renewed(place: str) -> None:
    holders = list_at(place)
    with hold(holders) as lock:
        time.sleep(SHORT.lease_seconds + 2 * SHORT.margin_seconds)
        lock.ensure_held()
        assert entries(holders)[0]["renewals"] > 2
        with pytest.raises(LockedError):
            hold(list_at(place)).__enter__()


@pytest.mark.parametrize("left", [b"", b"4711\n", b'{"holders": []}ers": []}'])
def test_the_file_of_an_earlier_release_or_a_killed_writer_locks_nothing(left: bytes, tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(left)
    with hold(HolderFile(tmp_path / "lock")) as lock:
        lock.ensure_held()


def test_a_holder_learns_that_its_entry_was_removed(place: str) -> None:
    holders = list_at(place)
    with hold(holders) as lock:
        take_away(holders)
        assert eventually(lambda: is_lost(lock))


@pytest.fixture
def cut_off(store: ObjectStore) -> Iterator[tuple[Any, str]]:
    """A proxy that can cut the network, and a folder behind it."""
    with faulty_proxy(store.port) as proxy:
        place = f"storage/cut-off?endpoint_override=127.0.0.1:{proxy.port}&scheme=http&region=us-east-1"
        yield proxy, f"s3://{KEY}:{SECRET}@{place}"


def test_a_holder_without_a_network_stops_in_time(
    cut_off: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, folder = cut_off
    monkeypatch.setattr(retries, "ATTEMPTS", 3)
    with hold(list_at(folder)) as lock:
        proxy.kinds, proxy.share = ("reset",), 1.0
        time.sleep(SHORT.lease_seconds + 0.5)
        with pytest.raises(LockedError, match="could not be renewed"):
            lock.ensure_held()
        proxy.share = 0.0


def test_a_holder_that_lost_its_lock_writes_nothing_more(place: str) -> None:
    root = Storage.at(place)
    dataset = root.child("set")
    with root.exclusive_lock("lock", times=SHORT) as lock:
        dataset.write_atomic("before", b"1")
        take_away(list_at(place))
        assert eventually(lambda: is_lost(lock))
        for change in (
            lambda: root.child("set").write_atomic("after", b"1"),
            lambda: root.create_if_absent("set/manifests/000001.json", b"{}"),
            lambda: dataset.delete("before"),
            lambda: dataset.delete_tree(""),
        ):
            with pytest.raises(LockedError, match="was lost"):
                change()
    assert [entry.path for entry in dataset.list_files()] == ["before"]
    dataset.write_atomic("after", b"1")
