"""Versions are pushed to a server on this machine through the real client, and read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.exports.push import Pushed, push
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import PublishConflict, StorageError, UsageError
from tests.samples.datasets.published import coloured, publish
from tests.samples.stores.hub import TOKEN, Files, Hub, serving

PICTURES = coloured({"train": {"red fox": 7, "späte Eule": 5}, "test": {"red fox": 2}})
PLACE = "hf://datasets/me/pets"


@pytest.fixture(scope="module")
def served() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture
def hub(served: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("SHARDMILL_PUSH_COPY", str(tmp_path / "made for the hub"))
    served.repositories.clear()
    served.large.clear()
    served.faults.clear()
    served.uploads.clear()
    return served


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def version(root: Path) -> DatasetVersion:
    return publish(root, PICTURES, name="pets")


def files_of(hub: Hub, name: str = "me/pets") -> Files:
    found = hub.repositories[name].files()
    assert found is not None
    return found


def card_of(hub: Hub) -> tuple[dict[str, object], str]:
    _, head, text = files_of(hub)["README.md"].decode().split("---\n", 2)
    return yaml.safe_load(head), text


def commits(hub: Hub) -> int:
    return len(hub.repositories["me/pets"].commits)


def test_an_export_is_pushed_in_one_commit_and_again_only_where_it_differs(
    hub: Hub, version: DatasetVersion, tmp_path: Path
) -> None:
    pushed = push(version, PLACE, license_id="cc-by-4.0")
    assert (pushed.is_new, commits(hub), hub.repositories["me/pets"].is_private) == (True, 2, True)
    assert pushed.commit == hub.repositories["me/pets"].refs["main"]
    export(version, tmp_path / "here", "huggingface")
    made = {path.name: path.read_bytes() for path in (tmp_path / "here/data").iterdir()}
    there = files_of(hub)
    assert {path[5:]: data for path, data in there.items() if path.startswith("data/")} == made
    for line in there["checksums.sha256"].decode().splitlines():
        assert hashlib.sha256(there[line[66:]]).hexdigest() == line[:64]
    summary = json.loads(there["export.json"])
    assert hashlib.sha256(there["checksums.sha256"]).hexdigest() == summary["checksums_sha256"]
    head, text = card_of(hub)
    assert head["license"] == "cc-by-4.0"
    assert {each["split"] for each in head["configs"][0]["data_files"]} == {"train", "test"}  # type: ignore[index]
    assert 'datasets.load_dataset("me/pets")' in text
    assert "Classes: red fox, späte Eule." in text
    uploads = len(hub.uploads)
    again = push(version, PLACE)
    assert (again.commit, again.added, again.num_unchanged) == (None, {}, len(there) - 1)
    assert (commits(hub), len(hub.uploads)) == (2, uploads)
    assert not list((tmp_path / "made for the hub").iterdir())


def test_the_next_version_takes_the_place_of_the_last_and_the_words_of_the_user_stay(
    hub: Hub, version: DatasetVersion, root: Path
) -> None:
    push(version, PLACE, license_id="mit")
    edited = files_of(hub)
    edited["README.md"] = edited["README.md"].replace(b"license: mit", b"license: mit\ndate: 2026-01-01")
    edited["README.md"] += "\nWords of a user: schön.\n".encode()
    hub.repositories["me/pets"].commit({**edited, "notes.txt": b"mine"})
    assert push(Catalog(root).open_view("pets?label == 'red fox'"), PLACE).deleted == []
    pushed = push(Catalog(root).open_view("pets?split == 'train'"), PLACE)
    assert pushed.deleted == [f"data/test-0000{number}-of-00002.parquet" for number in (0, 1)]
    there = files_of(hub)
    assert there["notes.txt"] == b"mine"
    head, text = card_of(hub)
    assert (head["license"], str(head["date"])) == ("mit", "2026-01-01")
    assert len(head["configs"][0]["data_files"]) == 1  # type: ignore[index]
    assert text.count("# pets") == 1
    assert text.endswith("\nWords of a user: schön.\n")


def test_shards_are_read_in_place(hub: Hub, version: DatasetVersion) -> None:
    push(version, PLACE, "shards")
    opened = Catalog(PLACE).open("pets")
    assert opened.manifest == version.manifest
    assert verify(opened).problems == verify(version).problems
    assert {path: data for path, data in files_of(hub).items() if path.startswith("pets/")} == {
        f"pets/{path}": version.storage.read_bytes(path)
        for path in [*version.manifest.files(), "manifests/000001.json", "croissant-000001.json"]
    }
    push(version, PLACE)  # both forms in one repository
    head, text = card_of(hub)
    assert "viewer" not in head
    assert f'open_dataset("pets@1", root="{PLACE}")' in text
    assert push(version, PLACE, "shards").commit is None
    assert push(opened, "hf://datasets/me/copy", "shards").is_new  # from a store
    assert files_of(hub, "me/copy").keys() >= {f"pets/{path}" for path in version.manifest.files()}


def test_a_dry_run_changes_nothing(hub: Hub, version: DatasetVersion) -> None:
    foreseen = push(version, PLACE, dry_run=True)
    assert (foreseen.commit, foreseen.is_new, hub.repositories) == (None, True, {})
    assert push(version, PLACE).added == foreseen.added


def test_an_interrupted_push_uploads_nothing_twice(
    hub: Hub, version: DatasetVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmill.infra.dataset.exports.push.PAUSES", ())
    hub.faults += [("/commit/", 503, {})]
    with pytest.raises(StorageError, match=r"cannot push to hf://datasets/me/pets: HTTP status 503"):
        push(version, PLACE)
    assert files_of(hub).keys() == {".gitattributes"}
    uploaded = list(hub.uploads)
    assert uploaded
    assert push(version, PLACE).commit
    assert hub.uploads == uploaded


def test_a_busy_hub_is_asked_again(
    hub: Hub, version: DatasetVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmill.infra.dataset.exports.push.PAUSES", (0, 0, 0, 0))
    hub.faults += [
        ("GET /api/datasets/me/pets", 503, {}),
        ("create", 503, {}),
        ("PUT /large", 503, {"Retry-After": "0"}),
        ("/commit/", 429, {}),
        ("/commit/", 504, {}),
    ]
    assert push(version, PLACE).commit
    assert hub.faults == []


def test_the_commit_of_another_is_kept(
    hub: Hub, version: DatasetVersion, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmill.infra.dataset.exports.push.PAUSES", (0, 0))
    push(version, PLACE, "shards")

    def edit() -> None:
        hub.repositories["me/pets"].commit({**files_of(hub), "notes.txt": b"mine"})

    hub.before_commit = edit
    push(version, PLACE)
    assert files_of(hub)["notes.txt"] == b"mine"
    other = Catalog(root).open_view("pets?label == 'red fox'")
    another: list[Pushed] = []
    hub.before_commit = lambda: another.append(push(other, PLACE))
    with pytest.raises(PublishConflict, match="another push to hf://datasets/me/pets came between"):
        push(Catalog(root).open_view("pets?split == 'train'"), PLACE)
    assert another[0].commit == hub.repositories["me/pets"].refs["main"]


def test_two_versions_that_are_pushed_at_once_are_both_there(
    hub: Hub, version: DatasetVersion, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmill.infra.dataset.exports.push.PAUSES", (0, 0))
    other = publish(tmp_path, coloured({"train": {"red fox": 3}}), name="dogs")
    hub.before_commit = lambda: push(other, PLACE, "shards")
    push(version, PLACE, "shards")
    catalog = Catalog(PLACE)
    assert [catalog.open(name).manifest for name in ("dogs", "pets")] == [other.manifest, version.manifest]
    assert card_of(hub)[1].count(": begin -->") == 2


def test_other_data_are_not_overwritten(
    hub: Hub, version: DatasetVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(publish(tmp_path, coloured({"train": {"red fox": 3}}), name="dogs"), PLACE)
    with pytest.raises(UsageError, match=r"holds the dataset dogs .*name another repository"):
        push(version, PLACE)
    hub.add("me/pets", {"data/train-00000-of-00001.parquet": b"of a user"})
    with pytest.raises(UsageError, match=r"holds other data: data/train-00000-of-00001.parquet"):
        push(version, PLACE)
    push(publish(tmp_path, coloured({"train": {"red fox": 3}}), name="pets"), PLACE, "shards")
    with pytest.raises(PublishConflict, match="has another pets@1"):
        push(version, PLACE, "shards")
    with pytest.raises(UsageError, match=r"hf://datasets/me/pets is on the Hub.*shardmill push pets@1"):
        export(version, PLACE)
    with pytest.raises(UsageError, match="is no repository"):
        push(version, f"{PLACE}/folder")
    with pytest.raises(UsageError, match="is no whole version"):
        push(Catalog(tmp_path).open_view("pets?split == 'train'"), PLACE, "shards")
    hub.repositories.clear()
    with pytest.raises(StorageError, match=r"does not take the files.*license.*--license"):
        push(version, PLACE, license_id="none-such")
    hub.add("me/pets", {"README.md": b"---\n: [\n---\n"})
    with pytest.raises(UsageError, match=r"README.md of the repository cannot be read"):
        push(version, PLACE)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match=r"needs a token .*set HF_TOKEN to one that may write to me/pets"):
        push(version, PLACE)
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    with pytest.raises(StorageError, match="refuses the token") as refused:
        push(version, PLACE)
    assert "s3cret" not in str(refused.value)
