"""Failures around prepare (disk, root, source) give a clear error or a row, and nothing half-published.

Disks that are full or read-only are small file systems in memory, mounted in a mount namespace of the test's
own (unshare); where the kernel does not allow that, these tests skip and say so.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.format.contract import FORMAT_VERSIONS
from tests.samples.images.photos import jpeg, make_photos
from tests.samples.preparing.command import prepare_command

SETTINGS = ("runner.processes=1", "runner.block_images=8", "shards.num_shards=2", "image.size=160")


def command(source: Path, root: Path, *more: str) -> list[str]:
    argv = prepare_command(source, root)
    return [*argv, "--json", *more, *(word for one in SETTINGS for word in ("--set", one))]


def prepare(source: Path, root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = command(source, root, *more)
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)


def data(root: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(root)): path for path in (root / "d/data").rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(files.items()) if path.suffix != ".html"}


def all_but_locks(root: Path) -> dict[Path, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path: path.read_bytes() for path in files}


def check_error(returncode: int, stderr: str, says: str, status: int = 4) -> None:
    assert returncode == status, stderr
    assert says in stderr
    assert "remedy:" in stderr
    assert "Traceback" not in stderr


def in_namespace(script: str, *arguments: str | Path) -> str:
    """Run a shell script in its own mount namespace; return its output."""
    allowed = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    if allowed.returncode:
        pytest.skip(f"no mount namespace here, so no disk can be full: {allowed.stderr.decode().strip()}")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-eu", "-c", script, "sh", *map(str, arguments)],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("source"), {"a": 40, "b": 30}, height=240, width=320)


@pytest.mark.slow
def test_a_full_disk_at_every_stage(source: Path, tmp_path: Path) -> None:
    """The disk grows a little each time the run fails, until it is large enough: the same bytes as ever."""
    script = """
        root=$1; out=$2; shift 2
        mkdir -p "$root"; mount -t tmpfs -o size=64k tmpfs "$root"
        size=64
        while true; do
            status=0; "$@" > "$out/stdout" 2> "$out/stderr.$size" || status=$?
            published=no; if ls "$root"/d/manifests/*.json > /dev/null 2>&1; then published=yes; fi
            stages=$(ls "$root"/d/spool/*/ 2>/dev/null | tr '\\n' ' ')
            echo "$size $status $published $stages"
            if [ $status = 0 ] || [ $size -gt 4000 ]; then break; fi
            size=$((size + 288)); mount -o remount,size=${size}k "$root"
        done
        cp -a "$root/." "$out/root"
    """
    (tmp_path / "out/root").mkdir(parents=True)
    root = tmp_path / "root"
    told = in_namespace(script, root, tmp_path / "out", *command(source, root)).splitlines()
    *failed, last = [line.split() for line in told]
    assert len(failed) >= 3
    for size, status, published, *_ in failed:
        assert (status, published) == ("4", "no")
        check_error(4, (tmp_path / f"out/stderr.{size}").read_text(), "No space left on device")
    assert "shards" in failed[-1], "the last failure came when all was encoded"
    assert last[1:3] == ["0", "yes"]
    assert prepare(source, tmp_path / "easy").returncode == 0
    assert data(tmp_path / "out/root") == data(tmp_path / "easy")
    assert verify(Catalog(tmp_path / "out/root").open("d")).problems == []


def test_a_read_only_root(source: Path, tmp_path: Path) -> None:
    script = """
        root=$1; out=$2; shift 2
        mkdir -p "$root"; mount -t tmpfs -o ro tmpfs "$root"
        status=0; "$@" > /dev/null 2> "$out/stderr" || status=$?
        echo $status $(ls -A "$root" | wc -l)
    """
    root = tmp_path / "root"
    status, entries = in_namespace(script, root, tmp_path, *command(source, root)).split()
    assert entries == "0"
    check_error(int(status), (tmp_path / "stderr").read_text(), "Read-only file system")


def test_a_root_that_is_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"not a folder")
    done = prepare(source, tmp_path / "root")
    check_error(done.returncode, done.stderr, str(tmp_path / "root"))


def test_a_root_of_another_format_version(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert prepare(source, root).returncode == 0
    manifest = root / "d/manifests/000001.json"
    for version in (min(FORMAT_VERSIONS) - 1, max(FORMAT_VERSIONS) + 1):
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format_version": version}))
        before = all_but_locks(root)
        done = prepare(source, root, "--set", "image.quality=50")
        check_error(done.returncode, done.stderr, f"format version {version}")
        assert all_but_locks(root) == before


def run_disturbed(source: Path, root: Path, disturb: Callable[[], None], *more: str) -> tuple[int, str]:
    """Halt the run between listing its source and reading it, disturb the source, and let it go on."""
    process = subprocess.Popen(
        command(source, root, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list((root / "d").glob("spool/*/references.arrow")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    assert not list((root / "d").glob("spool/*/blocks/*.arrow")), "it was reading already"
    disturb()
    process.send_signal(signal.SIGCONT)
    _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr


@pytest.fixture
def own_source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 70, "b": 60}, height=240, width=320)


def test_files_that_change_and_vanish_underneath(own_source: Path, tmp_path: Path) -> None:
    def disturb() -> None:
        (own_source / "b/00058.jpg").unlink()
        (own_source / "b/00057.jpg").write_bytes(jpeg(4242))
        (own_source / "b/00056.jpg").write_bytes(b"")

    root = tmp_path / "root"
    status, stderr = run_disturbed(own_source, root, disturb, "--failure-budget", "0.1")
    assert status == 0, stderr
    version = Catalog(root).open("d")
    rows = {row["uri"]: row for row in version.inputs().to_pylist() if row["outcome"] == "quarantined"}
    assert {uri: (row["stage"], row["reason"]) for uri, row in rows.items()} == {
        "b/00056.jpg": ("read", "changed"),
        "b/00057.jpg": ("read", "changed"),
        "b/00058.jpg": ("read", "vanished"),
    }
    assert verify(version).problems == []
    again = prepare(own_source, root, "--failure-budget", "0.1")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["quarantine"] == {"empty": 1}


def move(folder: Path, away: Path) -> None:
    folder.rename(away)


def test_a_source_that_goes_away_underneath(own_source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    away = tmp_path / "away"
    status, stderr = run_disturbed(own_source, root, lambda: move(own_source, away))
    check_error(status, stderr, "vanished", status=3)
    assert not (root / "d/manifests").exists()
    gone = prepare(own_source, root)
    check_error(gone.returncode, gone.stderr, "is not there", status=2)
    away.rename(own_source)
    back = prepare(own_source, root)
    assert back.returncode == 0, back.stderr
    outcome = json.loads(back.stdout.splitlines()[-1])
    assert (outcome["num_records"], outcome["num_quarantined"]) == (130, 0)
