"""Folders of extracted frames: certain ones, doubtful ones, and photographs, which are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.recognition.frames import find_frames
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.errors import UsageError
from tests.samples.images.photos import write


def numbered(*forms: str, count: int = 8) -> list[str]:
    return sorted(form.format(number) for form in forms for number in range(1, count + 1))


@pytest.mark.parametrize(
    ("uris", "videos"),
    [
        (numbered("cat/vid1/frame{:04}.png", "dog/vid2/frame{:04}.png"), ["cat/vid1/", "dog/vid2/"]),
        (numbered("cat/a_frame_{}.jpg", "cat/b_Frame_{}.jpg"), ["cat/a", "cat/b"]),
        (numbered("a/clip7-frame{:06}.jpg", "a/8.frames.{}.jpg"), ["a/8", "a/clip7"]),
    ],
)
def test_certain(uris: list[str], videos: list[str]) -> None:
    found = find_frames(uris)
    assert found is not None
    assert found.is_certain
    assert sorted(found.videos) == videos


@pytest.mark.parametrize(
    ("uris", "videos"),
    [
        (numbered("cat/clip_{:06}.jpg", "dog/clip_{:06}.jpg"), ["cat/clip", "dog/clip"]),
        (numbered("cat/vid1_{:03}.jpg", "cat/vid2_{:03}.jpg"), ["cat/vid1", "cat/vid2"]),
        (numbered("cat/video 3/{:05}.jpg", "dog/video 4/{:05}.jpg"), ["cat/video 3/", "dog/video 4/"]),
    ],
)
def test_doubtful(uris: list[str], videos: list[str]) -> None:
    found = find_frames(uris)
    assert found is not None
    assert not found.is_certain
    assert sorted(found.videos) == videos


@pytest.mark.parametrize(
    "uris",
    [
        numbered("cat/IMG_{:04}.jpg", "dog/DSC{:05}.JPG"),
        numbered("cat/image_{:04}.jpg"),
        numbered("cat/{:05}.jpg", "dog/{:05}.jpg"),
        numbered("n01440764/n01440764_{}.JPEG"),
        numbered("doorframes/door_{:03}.jpg"),
        numbered("cat/frameless_{:03}.jpg"),
        numbered("camel/camel_{:03}.jpg", "clipper/clipper_{:03}.jpg"),
        [f"cat/clip_{number * number:06}.jpg" for number in range(9)],
        [],
    ],
)
def test_photographs(uris: list[str]) -> None:
    assert find_frames(uris) is None


def config(kind: str, **settings: object) -> PrepareConfig:
    return PrepareConfig.model_validate({"source": {"kind": kind}, **settings})


def made(folder: Path, uris: list[str]) -> Path:
    write(folder, dict.fromkeys(uris, b"x"))
    return folder


def recognised(folder: Path, **settings: object) -> PrepareConfig:
    request = JobRequest(
        source=str(folder), dataset="d", root=str(folder / "r"), config=config("auto", **settings)
    )
    return settled(request).config


def test_auto_groups_frames_of_videos_in_folders_of_classes(tmp_path: Path) -> None:
    forms = [f"{label}/v{number}/frame{{:03}}.jpg" for label in ("cat", "dog") for number in range(2)]
    source = made(tmp_path, numbered(*forms))
    settings = recognised(source)
    listing = list_inputs(SourceFolder(str(source)), settings)
    groups = {row["group"] for row in listing.table.to_pylist()}
    assert groups == {"cat/v0/", "cat/v1/", "dog/v0/", "dog/v1/"}
    assert not listing.warnings
    assert recognised(source, groups={"pattern": "^(cat|dog)"}).groups.pattern == "^(cat|dog)"
    plain = list_inputs(SourceFolder(str(source)), config("image_folder"))
    assert plain.table["group"].null_count == plain.table.num_rows
    (told,) = plain.warnings
    assert told.startswith(
        "images are frames of 4 videos by the names of images, such as cat/v0/frame001.jpg; "
    )
    assert f"--set 'groups.pattern={settings.groups.pattern}' keeps each video in one split" in told


def test_auto_asks_whether_a_folder_of_frames_is_a_class(tmp_path: Path) -> None:
    source = made(tmp_path, numbered("vid1/frame{:04}.png", "vid2/frame{:04}.png"))
    with pytest.raises(UsageError, match="the images of each are frames of one video") as caught:
        recognised(source)
    assert caught.value.remedy is not None
    assert "--set source.layout=classes if so" in caught.value.remedy
    assert "--set source.labels=none --set 'groups.pattern=" in caught.value.remedy


def test_doubtful_frames_are_told_and_not_grouped(tmp_path: Path) -> None:
    source = made(tmp_path, numbered("cat/clip_{:06}.jpg", "dog/clip_{:06}.jpg"))
    settings = recognised(source)
    assert settings.groups.pattern is None
    listing = list_inputs(SourceFolder(str(source)), settings)
    assert listing.table["group"].null_count == listing.table.num_rows
    assert [text for text in listing.warnings if "may be frames" in text and "if the numbers count" in text]
