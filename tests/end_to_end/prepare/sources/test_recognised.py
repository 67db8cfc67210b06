"""Sources whose kind is recognised: later versions keep what the version before settled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import UsageError
from shardmill.infra.progress import subscribe
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.prepared import run

TABLE = b"path,label\ncat/00001.jpg,tame\ndog/00001.jpg,wild\n"


@pytest.fixture
def warnings() -> Any:
    events: list[Any] = []
    unsubscribe = subscribe(events.append)
    yield lambda: [event["message"] for event in events if event.get("level") == "warning"]
    unsubscribe()


def prepare(source: Path, root: Path, **settings: Any) -> dict[str, Any]:
    return run(source, root, source={"kind": "auto", **settings})


def test_a_kind_that_was_recognised_stays(tmp_path: Path, warnings: Any) -> None:
    source, root = make_photos(tmp_path / "photos", {"cat": 6, "dog": 6}), tmp_path / "root"
    assert prepare(source, root)["classes"] == ["cat", "dog"]
    assert prepare(source, root)["unchanged"]
    assert not [text for text in warnings() if "d@1" in text]
    write(source, {"labels.csv": TABLE, "cat/new.jpg": jpeg(901)})
    grown = prepare(source, root)
    assert (grown["version"], grown["classes"], grown["num_encoded"]) == (2, ["cat", "dog"], 1)
    assert Catalog(root).open("d").manifest.config["source"]["kind"] == "image_folder"
    (text,) = [text for text in warnings() if "the settings of d@1 are kept" in text]
    assert "table" in text


def test_groups_of_a_dataset_stay_where_its_images_look_like_frames(tmp_path: Path) -> None:
    """Its records have their splits; whole classes would become one video each."""
    source, root = tmp_path / "photos", tmp_path / "root"
    files = {
        f"{name}/a_frame_{n}.jpg": jpeg(n + 50 * (name == "dog")) for name in ("cat", "dog") for n in range(8)
    }
    write(source, files)
    run(source, root, source={"kind": "image_folder"})
    write(source, {"cat/a_frame_9.jpg": jpeg(99)})
    grown = prepare(source, root)
    assert (grown["version"], grown["num_encoded"]) == (2, 1)
    assert Catalog(root).open("d").manifest.config["groups"].get("pattern") is None
    with pytest.raises(UsageError, match="frames of one video"):
        prepare(source, tmp_path / "new")


def test_settings_that_were_recognised_stay(tmp_path: Path, warnings: Any) -> None:
    source, root = tmp_path / "photos", tmp_path / "root"
    write(source, {f"{number}.jpg": jpeg(number) for number in range(4)})
    lines = [f"{number}.jpg,{'ab'[number % 2]}" for number in range(4)]
    write(source, {"labels.csv": "\n".join(["image,label", *lines]).encode()})
    prepare(source, root)
    kept = Catalog(root).open("d").manifest.config["source"]
    assert kept["columns"]["image"] == "image"
    write(
        source,
        {"labels.csv": "\n".join(["path,image,label", *(f"{line[:5]},{line}" for line in lines)]).encode()},
    )
    assert prepare(source, root)["num_records"] == 4
    assert Catalog(root).open("d").manifest.config["source"] == kept
    (text,) = [text for text in warnings() if "the settings of d@1 are kept" in text]
    assert "source.columns.image = image (now path)" in text


def test_given_settings_win(tmp_path: Path) -> None:
    source, root = make_photos(tmp_path / "photos", {"cat": 6, "dog": 6}), tmp_path / "root"
    prepare(source, root)
    config = PrepareConfig.model_validate({"source": {"kind": "auto", "layout": "classes"}})
    request = JobRequest(source=str(source), dataset="d", root=str(root), config=config)
    assert settled(request).config.source.layout == "classes"


def test_another_source_is_recognised_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    prepare(make_photos(tmp_path / "photos", {"cat": 6, "dog": 6}), root)
    table = b"path,label\n1.jpg,tame\n2.jpg,wild\n"
    made = prepare(write(tmp_path / "other", {"labels.csv": table, "1.jpg": jpeg(1), "2.jpg": jpeg(2)}), root)
    assert Catalog(root).open("d").manifest.config["source"]["kind"] == "table"
    assert set(made["classes"]) >= {"tame", "wild"}
