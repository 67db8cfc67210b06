"""TFRecord files of others: feature maps, compression, and files that are damaged at any place."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.sources import list_inputs, open_source
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.records import frame
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.requests import asked
from tests.samples.sources.rows import example, images_of, listed, outcomes

PACK = {"": bytes, ".gz": gzip.compress, ".zlib": zlib.compress}


def records(count: int, first: int = 0) -> list[bytes]:
    return [
        example(image=[jpeg(first + row)], label=[row % 3], width=[64], name=[f"{row}.jpg".encode()])
        for row in range(count)
    ]


def framed(payloads: Sequence[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def uri(file: str, row: int) -> str:
    return f"{file}#row={row:07}"


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("in_run", [True, False])
def test_records_are_understood_without_settings(tmp_path: Path, ending: str, in_run: bool) -> None:
    source = tmp_path / "source"
    name, other = f"train.tfrecord-00000-of-00002{ending}", f"validation.tfrecord{ending}"
    pack = PACK[ending]
    write(source, {name: pack(framed(records(5))), other: pack(framed(records(2, 5))), "notes.bin": b""})
    assert outcomes(listed(source, "tfrecord", class_names=["a", "b", "c"])) == {
        "notes.bin": (None, None, "other_file"),
        name: (None, None, "row_file"),
        **{uri(name, row): ("abc"[row % 3], "train", None) for row in range(5)},
        other: (None, None, "row_file"),
        **{uri(other, row): ("abc"[row % 3], "validation", None) for row in range(2)},
    }
    images = images_of(source, "tfrecord", tmp_path / "run" if in_run else None)
    assert list(images.values()) == [jpeg(row) for row in range(7)]


def test_features_by_their_names(tmp_path: Path) -> None:
    payloads = [
        example(**{
            "image/encoded": [jpeg(row)], "thumb": [jpeg(50 + row)], "image/class/label": [row],
            "image/class/text": [text], "part": [b"train"], "person": [row // 2],
        })
        for row, text in enumerate([b"hat", b"cap", b"", b"\xff"])
    ]  # fmt: skip
    payloads += [
        example(**{"image/encoded": [jpeg(7)], "image/class/text": [b"a", b"b"]}),
        example(**{"image/class/text": [b"cap"]}),
        b"\xff\xff",
    ]
    write(tmp_path, {"a.tfrecord": framed(payloads)})
    settings = {"image": "image/encoded", "split": "part", "group": "person"}
    listing = listed(tmp_path, "tfrecord", **settings)
    assert list(outcomes(listing).values())[1:] == [
        ("hat", "train", None), ("cap", "train", None), (None, "train", "no_label"),
        (None, None, "broken_row"), (None, None, "broken_row"), ("cap", None, None),
        (None, None, "broken_row"),
    ]  # fmt: skip
    messages = listing.table["message"].to_pylist()
    assert messages[4].startswith("its feature 'image/class/text' is no text")
    assert messages[5] == "its feature 'image/class/text' has 2 values"
    assert listing.table["group"].to_pylist()[1:4] == ["0", "0", "1"]
    images = images_of(tmp_path, "tfrecord", **settings)
    assert images[uri("a.tfrecord", 1)] == jpeg(1)
    assert images[uri("a.tfrecord", 5)] == (
        "no_image",
        "its feature 'image/encoded' is not a single value of bytes",
    )
    with pytest.raises(ConfigError, match=r"several features that could hold images: image/encoded, thumb"):
        listed(tmp_path, "tfrecord")


@pytest.mark.parametrize(
    ("payload", "settings", "message"),
    [
        (
            example(image=[b"?"], label=[1]),
            {},
            "no feature that could hold images; it has 'image', 'label'",
        ),
        (
            example(image=[jpeg(0)], kind=[1]),
            {},
            "which feature of the first record .* label .*'kind'",
        ),
        (example(image=[jpeg(0)], kind=[1]), {"label": "sort"}, "no feature 'sort' for the label; it has"),
        (b"plain text", {}, "not tf.train.Example"),
    ],
)
def test_what_cannot_be_told_is_asked_for(
    tmp_path: Path, payload: bytes, settings: dict[str, Any], message: str
) -> None:
    write(tmp_path, {"a.tfrecord": frame(payload)})
    with pytest.raises(ConfigError, match=message):
        listed(tmp_path, "tfrecord", **settings)


def test_a_damaged_record_costs_itself_only(tmp_path: Path) -> None:
    payloads = records(4)
    data = bytearray(framed(payloads))
    data[len(frame(payloads[0])) + 200] ^= 1  # in the image of the second record
    write(tmp_path, {"a.tfrecord": bytes(data)})
    assert [row[2] for row in outcomes(listed(tmp_path, "tfrecord")).values()] == [
        "row_file", None, "broken_row", None, None
    ]  # fmt: skip
    assert list(images_of(tmp_path, "tfrecord").values()) == [jpeg(0), jpeg(2), jpeg(3)]


@pytest.mark.parametrize("ending", PACK)
def test_files_cut_at_any_place_keep_what_is_in_front(tmp_path: Path, ending: str) -> None:
    whole = PACK[ending](framed(records(4)))
    draw = random.Random(0)
    for trial in range(10):
        root, name = tmp_path / str(trial), f"b.tfrecord{ending}"
        write(root, {"a.tfrecord": framed(records(1, 90)), name: whole[: draw.randrange(len(whole))]})
        found = outcomes(listed(root, "tfrecord"))
        rows = [reason for uri, (_, _, reason) in found.items() if uri.startswith(f"{name}#")]
        if rows:
            assert set(rows[:-1]) <= {None}
            assert rows[-1] == "broken_container" or len(whole) == 4
        else:
            assert found[name] == (None, None, "broken_container")
        images = list(images_of(root, "tfrecord", root / "run").values())
        assert images == [jpeg(90), *(jpeg(row) for row in range(len(images) - 1))]


def test_a_length_that_lies_takes_no_memory(tmp_path: Path) -> None:
    import struct

    from shardmill.infra.format.records import masked_crc32c

    length = struct.pack("<Q", 1 << 60)
    head = length + struct.pack("<I", masked_crc32c(length))
    write(tmp_path, {"a.tfrecord": framed(records(1)) + head + b"x" * 100})
    assert [row[2] for row in outcomes(listed(tmp_path, "tfrecord")).values()] == [
        "row_file", None, "broken_container"
    ]  # fmt: skip


def test_nothing_to_read(tmp_path: Path) -> None:
    write(tmp_path, {"a.tfrecord": b"", "b.txt": b""})
    with pytest.raises(NotFoundError, match="hold no image: it "):
        listed(tmp_path, "tfrecord")
    with pytest.raises(NotFoundError, match="it holds no TFRecord file"):
        listed(write(tmp_path / "other", {"a.bin": b"x"}), "tfrecord")


def detected(row: int, boxes: Sequence[Sequence[float]], names: Sequence[str], **changed: Any) -> bytes:
    """A record as TensorFlow's Object Detection API has it; boxes are ymin, xmin, ymax, xmax."""
    edges = {
        f"image/object/bbox/{edge}": [float(box[at]) for box in boxes]
        for at, edge in enumerate(("ymin", "xmin", "ymax", "xmax"))
    }
    features: dict[str, Any] = {
        "image/encoded": [jpeg(row)], "image/height": [48], "image/width": [64], **edges,
        "image/object/class/text": [name.encode() for name in names],
        "image/object/class/label": [{"cat": 3, "dog": 7}.get(name, 0) for name in names],
        "image/object/difficult": [at % 2 for at in range(len(names))],
    }  # fmt: skip
    return example(**{key: value for key, value in (features | changed).items() if value is not None})


BOX = (0.25, 0.5, 0.75, 1.0)


def test_objects_of_the_object_detection_api(tmp_path: Path) -> None:
    payloads = [
        detected(0, [], []),
        detected(1, [BOX, (0.1, 0.1, 0.1, 0.5)], ["dog", "cat"]),
        detected(2, [BOX, (-0.5, 0, 0.5, 1.5), (0.5, 0.5, float("nan"), 1)], ["cat", "dog", "dog"]),
        detected(3, [BOX, BOX], ["cat"]),
        detected(4, [BOX], ["cat"], **{"image/object/bbox/xmin": [0.5, 0.5]}),
        detected(5, [BOX], [" cat "]),
        detected(6, [BOX], [""]),
        detected(7, [BOX], ["cat"], **{"image/object/difficult": None}),
    ]
    write(tmp_path, {"train-00000.record": framed(payloads[:4]), "val-00000.record": framed(payloads[4:])})
    request = settled(asked(tmp_path))
    assert (request.config.source.kind, request.config.source.labels) == ("tfrecord", "multi")
    listing = list_inputs(open_source(request), request.config)
    rows = {row["uri"]: row for row in listing.table.to_pylist() if "#" in row["uri"]}
    lost = {name for name, row in rows.items() if row["reason"] == "broken_row"}
    assert lost == {uri("train-00000.record", 3), uri("val-00000.record", 0)}
    names = ("bbox", "label", "is_crowd", "num_left_out")
    found = {name: tuple(row[f"feature:objects/{key}"] for key in names) for name, row in rows.items()}
    assert found[uri("train-00000.record", 0)] == ([], [], [], 0)
    assert found[uri("train-00000.record", 1)] == ([*BOX], ["dog"], [0], 1)
    assert found[uri("train-00000.record", 2)] == ([*BOX, 0, 0, 0.5, 1], ["cat", "dog"], [0, 1], 1)
    assert found[uri("val-00000.record", 1)] == ([*BOX], ["cat"], [0], 0)
    assert found[uri("val-00000.record", 2)] == ([], [], [], 1)
    assert found[uri("val-00000.record", 3)] == ([*BOX], ["cat"], [0], 0), "it marks no object"
    assert rows[uri("val-00000.record", 1)]["split"] == "validation"
    images = images_of(tmp_path, "tfrecord", labels="multi")
    assert images[uri("train-00000.record", 1)] == jpeg(1)


@pytest.mark.parametrize(("names", "classes"), [([], ["7", "3"]), (["3:cat", "7:dog"], ["dog", "cat"])])
def test_objects_whose_classes_are_numbers(tmp_path: Path, names: list[str], classes: list[str]) -> None:
    payload = detected(1, [BOX, BOX], ["dog", "cat"], **{"image/object/class/text": None})
    write(tmp_path, {"a.record": framed([payload]), "names.txt": "\n".join(names).encode()})
    settings = {"classes_file": "names.txt"} if names else {}
    table = listed(tmp_path, "tfrecord", labels="multi", **settings).table
    (found,) = (row for row in table.to_pylist() if "#" in row["uri"])
    assert found["feature:objects/label"] == classes


def as_png(mask: np.ndarray) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(mask).save(sink, "PNG")
    return sink.getvalue()


def test_masks_of_the_object_detection_api_become_polygons(tmp_path: Path) -> None:
    mask = np.zeros((48, 64), np.uint8)
    mask[12:36, 32:64] = 1
    mask[20:24, 40:44] = 0
    good, empty = as_png(mask), as_png(0 * mask)
    boxes, names, key = [BOX, BOX], ["cat", "dog"], "image/object/mask"
    masks = [[good, empty], [], [good], [jpeg(1), good]]
    payloads = [detected(at, boxes, names, **{key: each}) for at, each in enumerate(masks)]
    payloads.append(detected(9, [(0.1, 0.1, 0.1, 0.2), BOX], names, **{key: [empty, good]}))
    write(tmp_path, {"a.record": framed(payloads)})
    listing = listed(tmp_path, "tfrecord", labels="multi")
    rows = [row for row in listing.table.to_pylist() if "#" in row["uri"]]
    assert [row["reason"] for row in rows] == [None, None, "broken_row", None, None]
    assert [row["feature:objects/rings"] for row in rows] == [[2, 0], [0, 0], [], [0, 2], [2]]
    points = np.rint(np.reshape(rows[0]["feature:objects/polygons"], (-1, 2)) * (48, 64))
    assert {tuple(point) for point in points} == {
        (12, 32), (12, 64), (36, 32), (36, 64), (20, 40), (20, 44), (24, 40), (24, 44),
    }  # fmt: skip
    assert "2 masks that cannot be read or are empty left out" in listing.warnings


def test_a_label_map_names_classes_that_are_numbers(tmp_path: Path) -> None:
    payload = detected(1, [BOX, BOX], ["dog", "cat"], **{"image/object/class/text": None})
    items = b'item {\n  id: 3\n  name: \'cat\'\n}\nitem {\n  name: "/m/1" id: 7 display_name: "a dog"\n}\n'
    write(tmp_path, {"a.record": framed([payload]), "label_map.pbtxt": items})
    request = settled(asked(tmp_path))
    table = list_inputs(open_source(request), request.config).table
    (found,) = (row for row in table.to_pylist() if "#" in row["uri"])
    assert found["feature:objects/label"] == ["a dog", "cat"]


def test_objects_in_pixels_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a.record": framed([detected(1, [(5, 6, 30, 40)], ["cat"])])})
    with pytest.raises(ConfigError, match="seem to be in pixels"):
        listed(tmp_path, "tfrecord", labels="multi")
