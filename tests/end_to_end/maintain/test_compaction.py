"""Many ingests leave many shards; compaction writes them anew without reading a source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.maintain import compaction as compaction_module
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.flows import cli
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.progress import subscribe
from tests.samples.datasets.contents import outcomes, records, splits
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.runs import Saved, during, problems, run, stopped


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Five versions, each of one file more."""
    place = tmp_path_factory.mktemp("compaction")
    source, root = make_photos(place / "source", {"a": 14, "b": 8}), place / "root"
    run(source, root)
    for number in range(4):
        write(source, {f"b/new{number}.jpg": jpeg(700 + number)})
        run(source, root)
    return Saved(place)


def test_a_compacted_version_holds_what_it_held(root: Path, source: Path, tmp_path: Path) -> None:
    catalog = Catalog(root)
    before = catalog.open("d")
    shutil.move(source, tmp_path / "elsewhere")  # it is not read
    done = compact(catalog, "d")
    after = catalog.open("d")
    assert (done["version"], done["unchanged"], done["num_shards"]) == (6, False, 3)
    assert done["num_shards_before"] == len(before.manifest.shards) > 3
    assert (after.manifest.parent, after.manifest.inputs) == (5, before.manifest.inputs)
    assert records(after) == records(before)
    assert splits(after) == splits(before)
    assert outcomes(after) == outcomes(before)
    assert problems(root) == []
    assert compact(catalog, "d")["unchanged"]
    shutil.move(tmp_path / "elsewhere", source)
    assert run(source, root)["unchanged"], "it is of the same source still"
    write(source, {"b/newest.jpg": jpeg(710)})
    assert run(source, root)["inherited_shards"] == 3


def test_a_version_of_a_job_server_that_is_gone_is_compacted_here(root: Path) -> None:
    path = root / "d/manifests/000005.json"
    manifest = json.loads(path.read_text())
    del manifest["checksum"]
    options = ["--job_endpoint=localhost:1", "--environment_type=LOOPBACK"]
    manifest["config"]["runner"] |= {"name": "portable", "options": options}
    path.write_text(json.dumps(manifest))
    assert compact(Catalog(root), "d")["num_shards"] == 3
    assert Catalog(root).open("d").manifest.config["runner"]["options"] == options


def test_the_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["compact", "d", "--root", str(root), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["version"], told["num_shards"]) == (6, 3)
    assert cli.run(["compact", "d", "--root", str(root)]) == 0
    assert "d@6 is compact: 3 shards" in capsys.readouterr().out
    assert cli.run(["compact", "dd", "--root", str(root)]) == 2
    assert "did you mean 'd'?" in capsys.readouterr().err


def test_a_compaction_that_is_stopped_goes_on(root: Path) -> None:
    with stopped(compaction_module, "check_shards"):
        compact(Catalog(root), "d")
    written = {path: path.stat().st_mtime_ns for path in (root / "d/data").rglob("*.tfrecord*")}
    compact(Catalog(root), "d")
    assert written == {path: path.stat().st_mtime_ns for path in (root / "d/data").rglob("*.tfrecord*")}
    assert problems(root) == []
    assert [path for path in (root / "d/spool").iterdir() if path.is_dir()] == []


def test_a_version_that_is_published_meanwhile_is_compacted(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_another() -> None:
        write(source, {"b/newest.jpg": jpeg(710)})
        run(source, root)

    monkeypatch.setattr(
        compaction_module, "check_shards", during(compaction_module, "check_shards", publish_another)
    )
    assert compact(Catalog(root), "d")["version"] == 7
    catalog = Catalog(root)
    assert records(catalog.open("d@7")) == records(catalog.open("d@6"))
    assert problems(root) == []


def test_a_damaged_shard_stops_it(root: Path) -> None:
    shard = next((root / "d/data").rglob("train-*.tfrecord*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptDataError, match="cannot be copied from") as caught:
        compact(Catalog(root), "d")
    assert "delete that shard" in str(caught.value.remedy)
    assert Catalog(root).versions("d") == [1, 2, 3, 4, 5]
    shard.unlink()
    with pytest.raises(CorruptDataError, match="d@5 is not whole"):
        compact(Catalog(root), "d")


def test_prepare_says_when_it_is_time(source: Path, root: Path) -> None:
    told: list[str] = []
    unsubscribe = subscribe(lambda event: told.append(str(event.get("message"))))
    try:
        for number in range(40):
            write(source, {f"b/more{number}.jpg": jpeg(800 + number)})
            run(source, root)
            if any("`shardmill compact d`" in line for line in told):
                break
    finally:
        unsubscribe()
    (hint,) = [line for line in told if "compact" in line]
    assert "shards where 1 would do" in hint
