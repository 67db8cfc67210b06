"""Frames of videos: which are chosen, what is read, and what is lost."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.video import recognise
from shardmill.beam_jobs.sources.recognition.glance import Glance
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.images.photos import write
from tests.samples.images.videos import number_of, sound, video

ALL = {"rate": "all"}


def config(options: dict[str, Any], **source: Any) -> PrepareConfig:
    return PrepareConfig.model_validate({"source": {"kind": "video", "options": options, **source}})


def listed(place: Path, options: dict[str, Any], **source: Any) -> dict[str, dict[str, Any]]:
    """URI -> row."""
    table = list_inputs(SourceFolder(str(place)), config(options, **source)).table
    return {row["uri"]: row for row in table.to_pylist()}


def read(place: Path, options: dict[str, Any]) -> dict[str, Any]:
    """URI -> pixels of each frame that is read, or the reason why it is lost."""
    return _read(place, options, list)


def _read(place: Path, options: dict[str, Any], order: Callable[[Any], Any]) -> dict[str, Any]:
    folder = SourceFolder(str(place))
    reader = pickle.loads(pickle.dumps(open_reader(folder, config(options))))
    found: dict[str, Any] = {}
    for file in order(file_refs(list_inputs(folder, config(options)).to_read())):
        try:
            found[file.uri] = np.asarray(Image.open(io.BytesIO(reader.read(file))))
        except SourceFault as fault:
            found[file.uri] = fault.reason
    return found


def shown(place: Path, options: dict[str, Any]) -> list[Any]:
    """Numbers that the frames show, or reasons."""
    return [one if isinstance(one, str) else number_of(one) for one in read(place, options).values()]


@pytest.mark.parametrize(
    ("codec", "form", "more"),
    [
        ("mpeg4", "mp4", {}),
        ("mpeg4", "avi", {"options": {"bf": "2"}}),
        ("libx264", "mp4", {"options": {"bf": "3"}, "sound": True}),
        ("libx264", "avi", {"options": {"bf": "3"}}),
        ("libx264", "matroska", {"pixels": "yuv420p10le"}),
        ("libvpx-vp9", "webm", {"sound": True}),
        ("libvpx", "webm", {"options": {"auto-alt-ref": "1", "lag-in-frames": "8"}}),
        ("mpeg2video", "mpegts", {"options": {"bf": "2"}, "rate": 25}),
        ("mjpeg", "mov", {"pixels": "yuvj422p"}),
        ("ffv1", "matroska", {"size": (37, 53), "pixels": "yuv444p"}),
        ("libx264", "mp4", {"size": (36, 54), "options": {"x264-params": "open-gop=1:bframes=3"}}),
    ],
    ids=str,
)
def test_each_frame_by_its_number(tmp_path: Path, codec: str, form: str, more: dict[str, Any]) -> None:
    write(tmp_path, {"a/clip.MP4": video(range(20, 40), codec, form, **more)})
    assert shown(tmp_path, ALL) == list(range(20, 40))
    forwards, backwards = read(tmp_path, ALL), _read(tmp_path, ALL, lambda files: list(files)[::-1])
    assert all(np.array_equal(backwards[uri], pixels) for uri, pixels in forwards.items())


def test_rows(tmp_path: Path) -> None:
    write(tmp_path, {"a/one.mp4": video(range(25)), "b/two.webm": video(range(3), "libvpx-vp9", "webm")})
    write(tmp_path, {"b/x.jpg": b"x", "b/empty.mp4": b"", "b/text.avi": b"no video", "b/sound.mp4": sound()})
    rows = listed(tmp_path, {})
    frames = [f"a/one.mp4#frame={number:07}" for number in (0, 10, 20)]
    assert list(rows) == [
        "a/one.mp4", *frames, "b/empty.mp4", "b/sound.mp4", "b/text.avi", "b/two.webm",
        "b/two.webm#frame=0000000", "b/x.jpg",
    ]  # fmt: skip
    assert {uri: row["reason"] for uri, row in rows.items() if row["reason"]} == {
        "a/one.mp4": "row_file", "b/empty.mp4": "empty", "b/sound.mp4": "no_image",
        "b/text.avi": "broken_container", "b/two.webm": "row_file", "b/x.jpg": "other_file",
    }  # fmt: skip
    assert rows["a/one.mp4"]["message"] == "3 of its 25 frames are read"
    told = [(rows[uri]["label"], rows[uri]["group"], rows[uri]["feature:frame"]) for uri in frames]
    assert told == [("a", "a/one.mp4", number) for number in (0, 10, 20)]
    assert [rows[uri]["feature:time_seconds"] for uri in frames] == [0, 1, 2]


def test_a_file_that_is_named_as_a_frame_is(tmp_path: Path) -> None:
    name = "a/one.mp4#frame=0000001"
    write(tmp_path, {"a/one.mp4": video(range(3)), name: b"x", "a/one.mp4##frame=0000001": b"x"})
    rows = listed(tmp_path, ALL)
    assert rows[name]["reason"] == "other_file"
    assert [uri for uri, row in rows.items() if row["reason"] is None] == [
        "a/one.mp4###frame=0000001", "a/one.mp4#frame=0000000", "a/one.mp4#frame=0000002",
    ]  # fmt: skip
    assert shown(tmp_path, ALL) == [1, 0, 2]


def test_frames_by_rate(tmp_path: Path) -> None:
    """Time stamps of WebM are milliseconds; a variable rate has no frame at some times."""
    write(tmp_path, {"a/even.webm": video(range(9), "libvpx-vp9", "webm", rate=30)})
    assert shown(tmp_path, {"rate": 30}) == list(range(9))
    assert shown(tmp_path, {"rate": 15}) == [0, 2, 4, 6, 8]
    write(tmp_path, {"a/even.webm": video(range(5), "libx264", stamps=[0, 1, 2, 20, 21])})
    assert shown(tmp_path, {"rate": 2}) == [0, 2, 3]
    assert shown(tmp_path, {"rate": 0.01}) == [0]


def test_frames_by_list(tmp_path: Path) -> None:
    write(tmp_path, {"a/one.mp4": video(range(12)), "a/two.mp4": video(range(12))})
    rows = listed(tmp_path, {"frames": {"a/one.mp4": [11, 3, 3, 12]}})
    assert [uri for uri, row in rows.items() if row["reason"] is None] == [
        "a/one.mp4#frame=0000003", "a/one.mp4#frame=0000011",
    ]  # fmt: skip
    beyond = rows["a/one.mp4#frame=0000012"]
    assert (beyond["reason"], beyond["message"]) == ("no_image", "its video has 12 frames, numbered from 0")
    assert rows["a/two.mp4"]["message"] == "0 of its 12 frames are read"
    rows = listed(tmp_path, {"seconds": [0.25, 1.19, 1.2]})
    assert [row["feature:frame"] for row in rows.values() if row["reason"] is None] == [2, 11, 2, 11]
    assert rows["a/one.mp4#seconds=1.2"]["reason"] == "no_image"
    with pytest.raises(ConfigError, match=r"'a/won\.mp4', and the source has no such video"):
        listed(tmp_path, {"seconds": {"a/won.mp4": [1]}})


def test_scenes(tmp_path: Path) -> None:
    """The same frames whether a worker reads all of a video or a part."""
    write(tmp_path, {"a/one.mp4": video([0] * 4 + [255] * 4 + [15] * 4, "libx264", options={"qp": "1"})})
    same = "same_scene"
    assert shown(tmp_path, {"scenes": 0.1}) == [
        0,
        same,
        same,
        same,
        255,
        same,
        same,
        same,
        15,
        same,
        same,
        same,
    ]
    for first in range(12):
        part = _read(tmp_path, {"scenes": 0.1}, lambda files, at=first: list(files)[at:])
        assert [uri for uri, one in part.items() if not isinstance(one, str)] == [
            f"a/one.mp4#scenes-0.1={number:07}" for number in (0, 4, 8) if number >= first
        ]


@pytest.mark.parametrize(
    ("codec", "form"), [("libx264", "mp4"), ("mpeg4", "avi"), ("libvpx-vp9", "webm"), ("libx264", "matroska")]
)
def test_broken_tail(tmp_path: Path, codec: str, form: str) -> None:
    """The frames before it are kept, with their numbers; the header tells how many are lost."""
    data = video(range(60), codec, form, options={"bf": "3"} if codec == "libx264" else {})
    name = "one.mkv" if form == "matroska" else f"one.{form}"
    write(tmp_path / "a", {name: data[: len(data) * 4 // 5]})
    rows = listed(tmp_path, ALL)
    lost = [row for row in rows.values() if row["reason"] == "broken_container"]
    numbers = shown(tmp_path, ALL)
    assert numbers == list(range(len(numbers)))
    assert 10 < len(numbers) < 55
    assert [row["uri"] for row in lost] == [f"a/{name}#frame={len(numbers):07}"]
    further = 60 - len(numbers) - 1
    assert lost[0]["message"].endswith(f": this and {further} further frames are lost")


def test_damage_in_the_middle_costs_frames_until_the_next_key_frame(tmp_path: Path) -> None:
    data = bytearray(video(range(60), "libx264", options={"bf": "2", "qp": "5", "g": "10"}))
    at = data.index(b"mdat") + (len(data) - data.index(b"mdat")) // 2
    data[at : at + 200] = bytes(200)
    write(tmp_path, {"a/one.mp4": bytes(data)})
    found = shown(tmp_path, ALL)
    lost = [number for number, one in enumerate(found) if one == "broken_container"]
    assert 0 < len(lost) < 25
    assert [one for one in found if one != "broken_container"] == [n for n in range(60) if n not in lost]
    backwards = _read(tmp_path, ALL, lambda files: list(files)[::-1])
    assert [at for at, one in enumerate(reversed(backwards.values())) if isinstance(one, str)] == lost


def test_damaged_files_are_the_same_in_any_order(tmp_path: Path) -> None:
    """Seeking in them, and reading behind their end, finds no other frames; odd metadata stop nothing."""
    data = video(range(20), "libx264", options={"bf": "2"})
    at = data.index(b"mdat") + 700
    avi = video(range(20), "mpeg4", "avi")
    title = video(range(2), "libvpx-vp9", "webm").replace(b"DURATION", b"DURAT\xff\xfeN")
    write(
        tmp_path / "a",
        {"1.mp4": data[:at] + bytes(range(60)) + data[at + 60 :], "2.avi": avi[:7000] + avi[7100:]},
    )
    write(tmp_path / "a", {"3.mp4": data[:-1] + b"x", "4.webm": title})
    forwards, backwards = read(tmp_path, ALL), _read(tmp_path, ALL, lambda files: list(files)[::-1])
    assert "broken_container" in {one for one in forwards.values() if isinstance(one, str)}
    assert forwards.keys() == backwards.keys()
    assert all(np.array_equal(forwards[uri], backwards[uri]) for uri in forwards)


def test_a_long_last_frame_is_no_damage(tmp_path: Path) -> None:
    stamps = [0, 1, 2, 60, 61]
    write(tmp_path / "a", {"1.mp4": video(range(5), "libx264", stamps=stamps)})
    write(tmp_path / "a", {"2.webm": video(range(5), "libvpx-vp9", "webm", stamps=stamps, sound=True)})
    assert [row["uri"] for row in listed(tmp_path, ALL).values() if row["reason"] == "broken_container"] == []


def test_videos_that_begin_again(tmp_path: Path) -> None:
    """The second of two streams in one file has the times of the first, so it is lost, and said to be."""
    one, other = (video(range(at, at + 10), "mpeg2video", "mpegts", rate=25) for at in (0, 10))
    late = video(range(5), "libx264", "matroska", stamps=range(100, 105))
    write(tmp_path / "a", {"1.mpg": one + other, "2.mkv": late})
    rows = listed(tmp_path, ALL)
    (lost,) = (row for row in rows.values() if row["reason"] == "broken_container")
    assert lost["message"].endswith("this and all further frames are lost")
    numbers = shown(tmp_path, ALL)
    assert numbers[-5:] == list(range(5))
    assert numbers[:-5] == list(range(len(numbers) - 5))
    assert len(numbers) >= 5 + 8


def test_key_frames_that_refer_to_earlier_frames(tmp_path: Path) -> None:
    """Where a picture is refreshed in parts, only decoding from the beginning gives it."""
    options = {"x264-params": "intra-refresh=1:keyint=8:bframes=0"}
    write(tmp_path, {"a/one.mkv": video(range(40), "libx264", "matroska", options=options)})
    assert [number_of(one) for one in _read(tmp_path, ALL, lambda files: list(files)[::-1]).values()] == [
        *reversed(range(40))
    ]


@pytest.mark.parametrize(("rotation", "turns"), [(90, 1), (180, 2), (-90, 3)])
def test_rotation(tmp_path: Path, rotation: int, turns: int) -> None:
    write(tmp_path, {"a/one.mp4": video([5], "libx264", rotation=rotation)})
    (pixels,) = read(tmp_path, ALL).values()
    assert number_of(np.rot90(pixels, -turns)) == 5


def test_hdr_and_hidden_files_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.mp4").write_bytes(video())
    playlist = f"#EXTM3U\n#EXTINF:1,\nfile://{tmp_path}/secret.mp4\n#EXT-X-ENDLIST\n".encode()
    hdr = video([1], "libx264", pixels="yuv420p10le", tags={"color_trc": 16})
    write(tmp_path / "source", {"a/list.mp4": playlist, "a/hdr.mp4": hdr})
    assert listed(tmp_path / "source", ALL)["a/list.mp4"]["reason"] == "broken_container"
    assert shown(tmp_path / "source", ALL) == ["unsupported"]


def test_videos_of_a_table(tmp_path: Path) -> None:
    write(tmp_path, {"one.mp4": video(range(3)), "two.mp4": video(range(3))})
    (tmp_path / "labels.csv").write_text("path,label,split,place\none.mp4,cat,train,x\ntwo.mp4,dog,test,y\n")
    table = {"table": {"file": "labels.csv"}, "columns": {"split": "split", "features": ["place"]}}
    rows = listed(tmp_path, {"frames": [0, 2]}, **table)
    names = ("label", "split", "group", "feature:frame", "feature:place")
    assert [tuple(row[name] for name in names) for row in rows.values() if "#frame" in row["uri"]] == [
        ("cat", "train", "one.mp4", 0, "x"), ("cat", "train", "one.mp4", 2, "x"),
        ("dog", "test", "two.mp4", 0, "y"), ("dog", "test", "two.mp4", 2, "y"),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"source\.columns\.label is for videos that a table names"):
        listed(tmp_path, {}, labels="none", columns={"label": "kind"})


def test_wrong_sources_and_options(tmp_path: Path) -> None:
    write(tmp_path, {"a/x.jpg": b"x"})
    with pytest.raises(NotFoundError, match="holds no video"):
        listed(tmp_path, {})
    for options in (
        {"rate": 0},
        {"rate": float("nan")},
        {"scenes": 0},
        {"rate": 1, "frames": [1]},
        {"frames": [-1]},
    ):
        with pytest.raises(ConfigError):
            listed(tmp_path, options)


def test_recognised_folders(tmp_path: Path) -> None:
    def found(uris: list[str], **settings: Any) -> list[str] | None:
        seen = recognise(Glance(SourceFolder(str(tmp_path)), uris), config({}, **settings).source)
        return None if seen is None else list(seen.readings)

    assert found(["cat/1.avi", "dog/1.mp4"]) == []
    assert found(["1.mp4"], labels="none") == []
    assert found(["cat/app.ts", "dog/1.jpg"]) is None
    (nested, *others) = found(["UCF-101/Archery/1.avi", "UCF-101/Biking/1.avi"]) or []
    assert nested.endswith("/UCF-101 as the source if 'Archery', 'Biking' are the classes")
    assert [others[0], others[-1]] == [
        "--source-kind video --set source.labels=none if the videos have no labels",
        "--source-kind video --set source.layout=classes if 'UCF-101' is their class",
    ]


def test_a_changed_video(tmp_path: Path) -> None:
    write(tmp_path, {"a/one.mp4": video(range(3))})
    folder = SourceFolder(str(tmp_path))
    files = list(file_refs(list_inputs(folder, config(ALL)).to_read()))
    by_name = files[1]._replace(container=None, position=None)
    reader = open_reader(folder, config(ALL))
    assert reader.read(by_name) == reader.read(files[1])
    write(tmp_path, {"a/one.mp4": video(range(1, 4))})
    with pytest.raises(SourceFault) as caught:
        reader.read(files[2])
    assert caught.value.reason == "changed"
