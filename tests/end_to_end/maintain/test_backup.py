"""A backup, and what a restore brings back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.flows.server.running_up import up_lock
from shardmill.infra.dataset.catalog import Catalog
from tests.prefect_server.postgresql import in_postgresql, running_postgresql
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.runs import problems, run


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions of a dataset, an alias, and a history of Prefect, all in one folder."""
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHARDMILL_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("SHARDMILL_RUNS", str(tmp_path / "runs"))
    source = make_photos(tmp_path / "source", {"a": 6, "b": 5})
    run(source, tmp_path / "root")
    write(source, {"a/new.jpg": jpeg(700)})
    run(source, tmp_path / "root")
    record = tmp_path / "runs" / "aliases" / "d" / "production" / "000001.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"run": "d-v1"}')
    database = tmp_path / "home" / "prefect" / "prefect.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE flow_run (name TEXT)")
        made.executemany("INSERT INTO flow_run VALUES (?)", [(f"run {number}",) for number in range(1000)])
        made.commit()
    return tmp_path


def command(*arguments: str, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.run([*arguments, "--json"]) == 0, capfd.readouterr().err
    found: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
    return found


def names(platform: Path) -> list[str]:
    with closing(sqlite3.connect(platform / "home" / "prefect" / "prefect.db")) as database:
        return [name for (name,) in database.execute("SELECT name FROM flow_run")]


@pytest.mark.parametrize("with_shards", [False, True])
def test_what_was_lost_comes_back(
    platform: Path, with_shards: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = platform / "monday"
    options = ["--with-shards"] if with_shards else []
    made = command("platform", "backup", str(kept), *options, capfd=capfd)
    assert (made["database"], made["num_alias_records"]) == ("prefect.db", 1)
    assert any(path.suffix == ".gz" for path in kept.rglob("*")) is with_shards
    before = Catalog(platform / "root").open("d@1").manifest

    shards = {path: path.read_bytes() for path in (platform / "root").rglob("*.tfrecord*")}
    for lost in ("root", "runs", "home"):
        shutil.rmtree(platform / lost)
    if not with_shards:  # they lie elsewhere, or in a backup of their own
        for path, data in shards.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    back = command("platform", "restore", str(kept), capfd=capfd)

    assert back["datasets"]["d"]["missing"] == 0
    assert Catalog(platform / "root").versions("d") == [1, 2]
    assert Catalog(platform / "root").open("d@1").manifest == before
    assert problems(platform / "root") == []
    assert (platform / "runs/aliases/d/production/000001.json").read_text() == '{"run": "d-v1"}'
    assert len(names(platform)) == 1000
    run(platform / "source", platform / "root")  # and the dataset goes on from there
    assert Catalog(platform / "root").versions("d") == [1, 2]


def test_missing_shards_are_counted(platform: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command("platform", "backup", str(platform / "monday"), capfd=capfd)
    shutil.rmtree(platform / "root")
    assert cli.run(["platform", "restore", str(platform / "monday"), "--replace"]) == 0
    assert "of d are missing, such as shards: shardmill verify d" in capfd.readouterr().err


def test_a_backup_of_a_database_that_is_written_is_whole(
    platform: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()

    def write_on() -> None:
        with closing(sqlite3.connect(platform / "home" / "prefect" / "prefect.db")) as database:
            while not stop.is_set():
                with database:  # both or neither
                    database.execute("INSERT INTO flow_run VALUES ('one')")
                    database.execute("INSERT INTO flow_run VALUES ('two')")

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for number in range(5):
            command("platform", "backup", str(platform / f"backup-{number}"), capfd=capfd)
    finally:
        stop.set()
        writer.join()
    for number in range(5):
        with closing(sqlite3.connect(platform / f"backup-{number}" / "prefect.db")) as copy:
            found = [name for (name,) in copy.execute("SELECT name FROM flow_run")]
        assert found.count("one") == found.count("two")


def test_nothing_that_is_there_is_overwritten(platform: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = str(platform / "monday")
    command("platform", "backup", kept, capfd=capfd)

    def refusal(*arguments: str) -> str:
        assert cli.run([*arguments]) != 0
        return capfd.readouterr().err

    assert "exists and is not empty" in refusal("platform", "backup", kept)
    assert "has a history already" in refusal("platform", "restore", kept)
    with up_lock():
        said = refusal("platform", "restore", kept, "--replace")
    assert "shardmill up is already running" in said
    assert "stop it first: shardmill down" in said
    assert "holds no backup" in refusal("platform", "restore", str(platform / "root"))
    manifest = platform / "root/d/manifests/000001.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    assert "is in" in (said := refusal("platform", "restore", kept, "--replace"))
    assert "with another content" in said
    assert not (platform / "home/prefect/prefect.db.before-restore").exists(), "the database is untouched"
    assert len(names(platform)) == 1000


def test_a_dataset_that_cannot_be_locked_is_backed_up_all_the_same(
    platform: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (platform / "root/d/upkeep.lock").unlink(missing_ok=True)
    (platform / "root/d/upkeep.lock").mkdir()  # as on a file system that is mounted to be read only
    made = command("platform", "backup", str(platform / "monday"), capfd=capfd)
    assert made["datasets"]["d"]["num_files"] > 0
    assert (platform / "monday/datasets/d/manifests/000002.json").exists()


def test_a_history_in_postgresql_comes_back(platform: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if shutil.which("pg_dump") is None or shutil.which("pg_restore") is None:
        pytest.skip("NO PG_DUMP: install postgresql-client (Debian) to run this test")
    kept = str(platform / "monday")
    with running_postgresql() as server:
        database = ("--database", server.url)
        in_postgresql(
            server.url,
            "CREATE TABLE flow_run (name text)",
            "INSERT INTO flow_run SELECT 'run ' || number FROM generate_series(1, 1000) AS number",
        )
        assert command("platform", "backup", kept, *database, capfd=capfd)["database"] == "prefect.dump"
        in_postgresql(server.url, "DELETE FROM flow_run WHERE name <> 'run 7'")
        left = in_postgresql(server.url, "SELECT * FROM flow_run")

        assert cli.run(["platform", "restore", kept, *database]) == 4
        assert "pg_restore failed" in capfd.readouterr().err
        assert in_postgresql(server.url, "SELECT * FROM flow_run") == left == [("run 7",)]
        assert cli.run(["platform", "restore", kept]) != 0
        assert "the backup is of PostgreSQL" in capfd.readouterr().err

        assert (
            command("platform", "restore", kept, *database, "--replace", capfd=capfd)["database"]
            == "prefect.dump"
        )
        assert in_postgresql(server.url, "SELECT count(*) FROM flow_run") == [(1000,)]

        in_postgresql(server.url, "CREATE DATABASE elsewhere")
        elsewhere = server.url.rpartition("/")[0] + "/elsewhere"
        command("platform", "restore", kept, "--database", elsewhere, capfd=capfd)
        assert in_postgresql(elsewhere, "SELECT count(*) FROM flow_run") == [(1000,)]
