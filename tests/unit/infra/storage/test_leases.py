"""Locks in object stores: who excludes whom, what dead holders leave, and how a holder learns of a loss."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from infra.errors import LockedError
from infra.storage.filesystem import Storage
from infra.storage.locks.leases import LeaseTimes, lease
from infra.storage.locks.locking import Lock
from infra.storage.objects.conditional import BucketWrites, ConditionalObjects, ObjectChanged
from tests.samples.faulty_proxy import faulty_proxy
from tests.samples.object_store import KEY, SECRET, ObjectStore
from tests.samples.waiting import eventually

SHORT = LeaseTimes(lease_seconds=4.0, renew_seconds=0.4, clock_seconds=1.0)
HOLDER = """
import sys, time
from infra.storage.filesystem import Storage
with Storage.at(sys.argv[1]).exclusive_lock("lock"):
    print("held", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def folder(store: ObjectStore, request: pytest.FixtureRequest) -> str:
    return store.location(request.node.name, credentials=f"{KEY}:{SECRET}@")


@pytest.fixture
def objects(folder: str) -> ConditionalObjects:
    return BucketWrites(folder, None).objects("", "s3://storage")


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/lock"


def hold(
    objects: ConditionalObjects, key: str, *, exclusive: bool = True, times: LeaseTimes = SHORT
) -> AbstractContextManager[Lock]:
    return lease(objects, key, exclusive=exclusive, purpose="a test", name=key, times=times)


def is_lost(lock: Lock) -> bool:
    """Tell whether the lock says that it was lost: its holder notices at the next renewal."""
    try:
        lock.ensure_held()
    except LockedError as error:
        return "was lost" in error.message
    return False


def holders(objects: ConditionalObjects, key: str) -> list[dict[str, Any]]:
    found = objects.read(key)
    assert found is not None
    listed: list[dict[str, Any]] = json.loads(found[0])["holders"]
    return listed


def leave_holder(objects: ConditionalObjects, key: str, *, expired_seconds: float) -> None:
    """Write the lock as a holder on another machine left it, whose entry ended so many seconds ago."""
    entry = {"id": "other", "exclusive": True, "host": "elsewhere", "machine": "another", "pid": 7}
    entry |= {"started": 1, "expires_at": time.time() - expired_seconds}
    objects.create(key, json.dumps({"holders": [entry]}).encode())


def test_a_lock_has_one_exclusive_holder_or_several_that_share_it(folder: str) -> None:
    one, other = Storage.at(folder), Storage.at(folder)
    with one.exclusive_lock("lock", "a test") as lock:
        lock.ensure_held()
        with pytest.raises(
            LockedError, match=r"\(pid \d+ on .*\) is busy with a test; it locks s3://storage/"
        ):
            other.exclusive_lock("lock", "a test").__enter__()
        with pytest.raises(LockedError):
            other.shared_lock("lock").__enter__()
    with one.shared_lock("lock"), other.shared_lock("lock"), pytest.raises(LockedError):
        other.exclusive_lock("lock").__enter__()
    with other.exclusive_lock("lock"):
        pass


def test_many_processes_change_the_list_of_holders_at_once(objects: ConditionalObjects, key: str) -> None:
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(hold(objects, key, exclusive=False))
        time.sleep(3 * SHORT.renew_seconds)
        assert len(holders(objects, key)) == 5
    assert holders(objects, key) == []


def test_the_lock_of_a_dead_process_of_this_machine_is_free_at_once(folder: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    storage = Storage.at(folder)
    with pytest.raises(LockedError, match=f"pid {holder.pid} on"):
        storage.exclusive_lock("lock").__enter__()
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with storage.exclusive_lock("lock"):
        pass


def test_the_lock_of_another_machine_is_free_when_it_ended_by_any_clock(
    objects: ConditionalObjects, key: str
) -> None:
    tolerant = LeaseTimes(lease_seconds=600.0, renew_seconds=60.0, clock_seconds=300.0)
    leave_holder(objects, key, expired_seconds=1.0)
    with pytest.raises(LockedError, match="pid 7 on elsewhere") as caught:
        hold(objects, key, times=tolerant).__enter__()
    assert "if it is dead, its lock ends in" in str(caught.value)
    old = f"{key}-old"
    leave_holder(objects, old, expired_seconds=tolerant.clock_seconds + 1.0)
    with hold(objects, old, times=tolerant):
        assert [entry["machine"] != "another" for entry in holders(objects, old)] == [True]


def test_a_lock_that_is_held_is_renewed(objects: ConditionalObjects, key: str) -> None:
    with hold(objects, key) as lock:
        first = holders(objects, key)[0]["expires_at"]
        time.sleep(SHORT.lease_seconds + SHORT.clock_seconds)
        lock.ensure_held()
        assert holders(objects, key)[0]["expires_at"] > first
        with pytest.raises(LockedError):
            hold(objects, key).__enter__()


def test_a_holder_learns_that_its_entry_was_removed(objects: ConditionalObjects, key: str) -> None:
    with hold(objects, key) as lock:
        for _ in range(20):  # the renewal may change the object first
            found = objects.read(key)
            assert found is not None
            try:
                objects.replace(key, b'{"holders": []}', found[1])
                break
            except ObjectChanged:
                continue
        assert eventually(lambda: is_lost(lock))


@pytest.fixture
def cut_off(store: ObjectStore) -> Iterator[tuple[Any, str]]:
    """A proxy that can cut the network, and a folder behind it."""
    with faulty_proxy(store.port) as proxy:
        place = f"storage/cut-off?endpoint_override=127.0.0.1:{proxy.port}&scheme=http&region=us-east-1"
        yield proxy, f"s3://{KEY}:{SECRET}@{place}"


def test_a_holder_without_a_network_stops_in_time(cut_off: tuple[Any, str]) -> None:
    proxy, folder = cut_off
    objects = BucketWrites(folder, None).objects("cut-off", "s3://storage/cut-off")
    with hold(objects, "cut-off/lock") as lock:
        proxy.kinds, proxy.share = ("reset",), 1.0
        time.sleep(SHORT.lease_seconds + 0.5)
        with pytest.raises(LockedError, match="could not be renewed"):
            lock.ensure_held()
        proxy.share = 0.0


def test_a_holder_that_lost_its_lock_writes_nothing_more(store: ObjectStore, folder: str) -> None:
    root = Storage.at(folder)
    dataset = root.child("set")
    with dataset.exclusive_lock("lock") as lock:
        dataset.write_atomic("before", b"1")
        [key] = [key for key in store.all_keys("") if key.endswith("nothing_more/set/lock")]
        objects = BucketWrites(folder, None).objects("", "s3://storage")
        found = objects.read(key)
        assert found is not None
        objects.replace(key, b'{"holders": []}', found[1])
        lock.ensure_held()
        assert eventually(lambda: is_lost(lock))
        for change in (
            lambda: root.child("set").write_atomic("after", b"1"),
            lambda: root.create_if_absent("set/manifests/000001.json", b"{}"),
            lambda: dataset.delete("before"),
            lambda: dataset.delete_tree(""),
        ):
            with pytest.raises(LockedError, match="was lost"):
                change()
    assert [entry.path for entry in dataset.list_files()] == ["before", "lock"]
    dataset.write_atomic("after", b"1")
