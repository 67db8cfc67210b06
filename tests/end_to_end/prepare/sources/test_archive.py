"""Archives through the whole of prepare: the same records as from folders, again, grown, cut, compressed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.locate import locate
from shardmill.infra.dataset.verify import verify
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import rows, run
from tests.samples.sources.archives import hostile_tar, make_tar, make_zip, pictures
from tests.samples.stores.object_store import KEY, SECRET, serve

FILES = pictures({"cat": 14, "dog": 10}, first=100)
CONFIG: dict[str, Any] = {"source": {"kind": "archive"}, "image": {"size": 16}, "failure_budget": 0.6}


def ids(root: Path, ref: str = "d") -> dict[str, tuple[str, str]]:
    """Record id -> (label, split)."""
    found = rows(Catalog(str(root)).open(ref)).values()
    return {row["record_id"]: (row["label"], row["split"]) for row in found if row["outcome"] == "record"}


def test_archives_give_the_records_of_folders(tmp_path: Path) -> None:
    write(tmp_path / "folder", FILES)
    run(tmp_path / "folder", tmp_path / "root", image={"size": 16})
    wanted = ids(tmp_path / "root")
    for name, make in {"a.tar": make_tar, "a.zip": make_zip}.items():
        source, root = tmp_path / name.replace(".", "-"), tmp_path / f"root-{name}"
        make(source / name, FILES)
        run(source, root, **CONFIG)
        assert ids(root) == wanted


def test_versions_of_growing_archives(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    names = sorted(FILES)
    make_tar(source / "one.tar.gz", {name: FILES[name] for name in names[:12]}, "w:gz")
    hostile_tar(source / "two.tar")
    first = run(source, root, **CONFIG)
    version = Catalog(str(root)).open("d")
    assert Counter(row["reason"] or row["outcome"] for row in rows(version).values()) == {
        "record": 12 + 2, "same_bytes": 2, "bad_name": 3, "replaced_member": 1, "archived_link": 2,
        "special_file": 2, "empty": 1, "ignored": 1, "unknown_format": 1,
    }  # fmt: skip
    assert not verify(version).problems
    assert first["num_encoded"] == 12 + 2 + 4
    assert "two.tar#cat/empty.jpg" in Path(first["report"]).read_text()
    assert not list((root / "d").rglob("*.tar")), "nothing unpacked is left"
    for asked in ("one.tar.gz#cat/0.jpg", f"{source}/one.tar.gz#cat/0.jpg"):
        (place,) = locate(version, source=asked)
        assert place["label"] == "cat"
    assert run(source, root, **CONFIG)["unchanged"]
    make_zip(source / "three.zip", {name: FILES[name] for name in names[12:]})
    grown = run(source, root, **CONFIG)
    assert grown["num_encoded"] == 12, "the images of unchanged archives are not read again"
    data = (source / "three.zip").read_bytes()
    (source / "three.zip").write_bytes(data[: len(data) // 2])
    cut = run(source, root, **CONFIG)
    assert cut["quarantine"]["broken_container"] == 1
    assert 14 < cut["num_records"] < 26
    assert cut["num_encoded"] == 0, "contents that are stored are not encoded again"


def test_a_dry_run_of_compressed_archives(tmp_path: Path) -> None:
    make_tar(tmp_path / "source/train.tar.gz", FILES, "w:gz")
    make_tar(tmp_path / "source/val.tar.gz", {"cat/v.jpg": jpeg(500)}, "w:gz")
    request = {"source": str(tmp_path / "source"), "dataset": "d", "root": str(tmp_path / "root")}
    outcome = dry_run(JobRequest.model_validate(request | {"config": CONFIG}))
    assert outcome["first_inputs"][0] == {
        "uri": "train.tar.gz#cat/0.jpg", "label": "cat", "split": "train", "group": None,
    }  # fmt: skip
    assert outcome["sample"]["num_stored"] == 25
    assert not (tmp_path / "root").exists()


@pytest.mark.slow
def test_the_runner_and_the_order_of_members_change_no_byte(tmp_path: Path) -> None:
    for number, names in enumerate((sorted(FILES), sorted(FILES, reverse=True))):
        make_tar(tmp_path / f"s{number}/a.tar", {name: FILES[name] for name in names})
        run(tmp_path / f"s{number}", tmp_path / f"r{number}", runner={"processes": number + 1}, **CONFIG)
    assert ids(tmp_path / "r0") == ids(tmp_path / "r1")


def test_archives_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed and read by ranges; a pattern limits the source to some of them."""
    for name, value in {
        "ACCESS_KEY_ID": KEY,
        "SECRET_ACCESS_KEY": SECRET,
        "EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    make_tar(tmp_path / "up/train-1.tar", {name: FILES[name] for name in sorted(FILES)[:12]})
    make_tar(tmp_path / "up/train-2.tar.gz", {name: FILES[name] for name in sorted(FILES)[12:]}, "w:gz")
    make_zip(tmp_path / "up/other.zip", {"cat/other.jpg": jpeg(900)})
    with serve("archives") as store:
        store.upload(tmp_path / "up", "source")
        place, _, options = store.location("source").partition("?")
        config = CONFIG | {"source": {"kind": "auto"}}
        request = {"source": f"{place}/train-*?{options}", "dataset": "d", "root": str(tmp_path / "root")}
        result = prepare_version(JobRequest.model_validate(request | {"config": config}))
        assert result["num_records"] == len(FILES)
        version = Catalog(str(tmp_path / "root")).open("d")
        assert {row["uri"].partition("#")[0] for row in rows(version).values()} == {
            "train-1.tar", "train-2.tar.gz",
        }  # fmt: skip
        one = request | {"source": f"{place}/other.zip?{options}", "dataset": "one"}
        assert prepare_version(JobRequest.model_validate(one | {"config": config}))["num_records"] == 1
