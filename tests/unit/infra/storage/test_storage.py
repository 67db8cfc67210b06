"""Storage: atomic writes, the publishing write, listings, locks."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardmill.infra.errors import LockedError, NotFoundError, PublishConflict, StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader


def test_a_written_file_appears_whole(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    with storage.atomic_writer("a/b/file") as stream:
        stream.write(b"one")
        assert stream.tell() == 3
        assert not storage.exists("a/b/file")
        assert storage.list_files() == []  # the partial file is nobody's business
    assert storage.read_bytes("a/b/file") == b"one"
    assert storage.size("a/b/file") == 3


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    storage.write_atomic("file", b"old")

    def write_and_fail() -> None:
        with storage.atomic_writer("file") as stream:
            stream.write(b"new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert storage.read_bytes("file") == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_sweep_takes_only_what_killed_writers_left(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    storage.write_atomic("a/b/file", b"kept")
    for left in (".partial-1", "a/.partial-2", "a/b/.partial-3"):
        (tmp_path / left).write_bytes(b"half")
    storage.sweep("a")
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {"file", ".partial-1"}
    storage.sweep()
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {"file"}
    storage.sweep("absent")


def test_exactly_one_writer_creates(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)

    def create(number: int) -> bool:
        try:
            storage.create_if_absent("manifests/000001.json", str(number).encode() * 1000)
        except PublishConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert sum(won) == 1
    assert storage.read_bytes("manifests/000001.json") == str(won.index(True)).encode() * 1000
    assert [file.name for file in (tmp_path / "manifests").iterdir()] == ["000001.json"]


@pytest.mark.parametrize("moment", ["fsync", "link"])
def test_a_writer_killed_while_creating_leaves_nothing_visible(tmp_path: Path, moment: str) -> None:
    """Killed before the file has its name, and just after."""
    code = f"""
import os
from shardmill.infra.storage.filesystem import Storage
do = os.{moment}
def die(*args, **options):
    do(*args, **options)
    os.kill(os.getpid(), 9)
os.{moment} = die
Storage.at({str(tmp_path)!r}).create_if_absent("manifests/000001.json", b"whole")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    storage = Storage.at(tmp_path)
    visible = {entry.path: storage.read_bytes(entry.path) for entry in storage.list_files("manifests")}
    assert visible == ({"manifests/000001.json": b"whole"} if moment == "link" else {})
    storage.sweep("manifests")
    assert len(list((tmp_path / "manifests").iterdir())) == len(visible)


def test_listing_is_sorted_and_relative(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    for name in ("b/2", "a", "b/1", "c/d/e"):
        storage.write_atomic(name, b"x")
    assert [entry.path for entry in storage.list_files()] == ["a", "b/1", "b/2", "c/d/e"]
    assert [entry.path for entry in storage.list_files("b")] == ["b/1", "b/2"]
    assert [entry.path for entry in storage.list_files(recursive=False)] == ["a"]
    assert storage.list_folders() == ["b", "c"]
    assert storage.list_files("absent") == []
    entry = storage.list_files("b")[0]
    assert (entry.size_bytes, entry.mtime_ns) == (1, (tmp_path / "b/1").stat().st_mtime_ns)


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    for read in (storage.read_bytes, storage.size, lambda path: storage.read_range(path, 0, 1)):
        with pytest.raises(NotFoundError, match="absent"):
            read("absent")
    with pytest.raises(NotFoundError, match="absent"):
        RangeReader(storage).read("absent", 0, 1)
    storage.delete("absent")
    storage.delete_tree("absent")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = Storage.at(tmp_path / "file")  # a file where a folder should be; root ignores mode bits
    with pytest.raises(StorageError, match="cannot write"):
        storage.write_atomic("x", b"1")
    with pytest.raises(StorageError, match="cannot write"):
        storage.create_if_absent("x", b"1")


def test_a_full_disk_is_a_clear_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    storage = Storage.at("/dev")
    with pytest.raises(StorageError, match="check free space"), storage.atomic_writer("shm/x") as stream:
        raise OSError(28, "No space left on device")
    assert stream.closed


def test_an_error_of_another_file_is_not_one_of_the_written_file(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with (
        pytest.raises(StorageError, match=f"^{absent}: No such file") as caught,
        Storage.at(tmp_path).atomic_writer("out"),
    ):
        absent.read_bytes()
    assert "free space" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_storage_travels_by_its_uri(tmp_path: Path) -> None:
    storage = pickle.loads(pickle.dumps(Storage.at(tmp_path).child("a", "b")))
    storage.write_atomic("c", b"x")
    assert (tmp_path / "a/b/c").read_bytes() == b"x"


def test_other_filesystems_by_uri(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path.as_uri())
    storage.write_atomic("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    with pytest.raises(StorageError, match="cannot open storage"):
        Storage.at("gopher://host/path")


def test_ranges_by_many_threads(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    for number in range(10):
        storage.write_atomic(f"{number}", bytes([number]) * 1000)
    reader = RangeReader(storage, max_open=3)

    def read(number: int) -> bool:
        return reader.read(f"{number % 10}", number, 10) == bytes([number % 10]) * 10

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(400)))
    assert reader.read("3", 995, 10) == b"\x03" * 5
    reader.close()


def test_a_lock_has_one_holder_and_dies_with_it(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    code = (
        "import sys, time\nfrom shardmill.infra.storage.filesystem import Storage\n"
        "with Storage.at(sys.argv[1]).exclusive_lock('lock'):\n"
        "    print('held', flush=True)\n    time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with (
        pytest.raises(LockedError, match=rf"pid {holder.pid}\) is busy with a test"),
        storage.exclusive_lock("lock", purpose="a test"),
    ):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with storage.exclusive_lock("lock"):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_is_free_after_use(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    for _ in range(2):
        with storage.exclusive_lock("a/lock"):
            pass
    assert multiprocessing.active_children() == []
