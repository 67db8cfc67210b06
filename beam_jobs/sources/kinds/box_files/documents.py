"""JSON files: of one image each, of several images, or with an image a line.

* BDD100K, Scalabel (https://doc.scalabel.ai/format.html): ``box2d`` with its last pixels, closed ``poly2d``,
  ``rle``; lines and curves are left out. The frames of a video stay in one split.
* CreateML (https://developer.apple.com/documentation/createml): the middle, width and height of each box.
* CrowdHuman (https://www.crowdhuman.org/download.html): the box of the full body.
* Datumaro (https://openvinotoolkit.github.io/datumaro): boxes, polygons and run lengths.
* Labelbox (https://docs.labelbox.com/reference/export-image-annotations), a line an image.
* SA-1B (https://ai.meta.com/datasets/segment-anything-downloads): masks without a class, here ``object``.
* Supervisely (https://developer.supervisely.com/getting-started/supervisely-annotation-format): rectangles
  with their last pixels, polygons with holes, and bitmaps.
* TT100K (https://cg.cs.tsinghua.edu.cn/traffic-sign): the edges of each box.
* VoTT (https://github.com/microsoft/VoTT): rectangles and polygons; an object has one tag.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from shardmill.beam_jobs.sources.annotations.collecting import Box, edges_of_size, is_text, size_of
from shardmill.beam_jobs.sources.annotations.reading import MOST_BYTES
from shardmill.beam_jobs.sources.annotations.shapes import Points, Shape, points_of, rings_of_file
from shardmill.beam_jobs.sources.annotations.tools.drawn import numbers_in
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.box_files.forms import Form, Noted, Picture, edges
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.polygons import signed_areas

_WITHOUT_CLASS = "object"  # SA-1B names none
_SHOWN = 40  # characters of a kind
_SEVERAL = "it was labelled several times"

Values = Mapping[str, Any]


def _values(value: Any) -> Values:
    """Return an object of JSON; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def _entries(value: Any) -> list[Values]:
    """Return a list of objects of JSON; an empty one in place of anything else."""
    return [_values(one) for one in value] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if is_text(value) and value else None


def _edges_in(values: Any, names: str, last: int = 0) -> Box | None:
    """Return the box whose left, top, right and bottom edge have these names; ``last`` is added to two."""
    numbers = numbers_in(_values(values), *names.split())
    return None if numbers is None else edges(numbers[0], numbers[1], numbers[2] + last, numbers[3] + last)


def _sized_in(values: Any, names: str) -> Box | None:
    """Return the box whose left, top, width and height have these names."""
    return edges_of_size(numbers_in(_values(values), *names.split()))


def _polygon(*rings: Any) -> Shape | None:
    """Return a polygon of rings of x, y, the first around the others; None if the first is none."""
    found = [points_of(ring) for ring in rings]
    if not len(found[0]):
        return None
    turned = [_turned(ring, is_hole=at > 0) for at, ring in enumerate(found)]
    return Shape(turned, has_holes=len(turned) > 1)


def _turned(ring: Points, *, is_hole: bool) -> Points:
    """Return a ring that turns one way, and a hole the other."""
    area = float(signed_areas(ring, np.array([len(ring)]))[0]) if len(ring) else 0.0
    return ring[::-1] if (area > 0) == is_hole else ring


def _createml(document: Any) -> Iterator[Picture]:
    for image in _entries(document):
        name = _text(image.get("image")) or _text(image.get("imagefilename"))
        objects = []
        for one in _entries(image.get("annotations", image.get("annotation"))):
            numbers = numbers_in(_values(one.get("coordinates")), "x", "y", "width", "height")
            box = None
            if numbers is not None:
                x, y, width, height = numbers
                box = edges(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            objects.append(Noted(_text(one.get("label")), box))
        yield Picture(name, objects)


def _scalabel(document: Any) -> Iterator[Picture]:
    frames = document.get("frames") if isinstance(document, dict) else document
    for frame in _entries(frames):
        size = _values(frame.get("size"))
        objects = [one for label in _entries(frame.get("labels")) for one in _of_scalabel(label)]
        name, video = _text(frame.get("name")), _text(frame.get("videoName"))
        yield Picture(
            f"{video}/{name}" if name and video else name,
            objects,
            size_of(size.get("height"), size.get("width")),
            group=video,
        )


def _of_scalabel(label: Values) -> Iterator[Noted]:
    name, attributes = _text(label.get("category")), _values(label.get("attributes"))
    is_crowd = bool(attributes.get("crowd") or attributes.get("ignored"))
    box, shape = _edges_in(label.get("box2d"), "x1 y1 x2 y2", last=1), None
    lines, mask = _entries(label.get("poly2d")), label.get("rle")
    if mask is None and lines:
        if not all(line.get("closed") and set(str(line.get("types"))) <= {"L"} for line in lines):
            yield Noted(name, left_out="line")
            return
        shape = Shape([points_of(line.get("vertices")) for line in lines])
    elif mask is None and label.get("box2d") is None:
        yield Noted(name, left_out="further label")
        return
    yield Noted(name, box, shape, mask, is_crowd)


def _crowd_human(document: Any) -> Iterator[Picture]:
    for image in _entries(document):
        objects = []
        for one in _entries(image.get("gtboxes")):
            is_ignored = _values(one.get("extra")).get("ignore") == 1
            is_region = one.get("tag") == "mask"
            name = "person" if is_region else _text(one.get("tag"))
            objects.append(Noted(name, edges_of_size(one.get("fbox")), is_crowd=is_ignored or is_region))
        yield Picture(_text(image.get("ID")), objects)


def _datumaro(document: Any) -> Iterator[Picture]:
    labels = _values(_values(_values(document).get("categories")).get("label"))
    names = [_text(one.get("name")) for one in _entries(labels.get("labels"))]
    for item in _entries(_values(document).get("items")):
        image = _values(item.get("image"))
        size = image.get("size")
        yield Picture(
            _text(image.get("path")) or _text(item.get("id")),
            [_of_datumaro(one, names) for one in _entries(item.get("annotations"))],
            size_of(*size) if isinstance(size, list) and len(size) == 2 else None,
        )


def _of_datumaro(one: Values, names: list[str | None]) -> Noted:
    number, kind = one.get("label_id"), one.get("type")
    is_known = isinstance(number, int) and 0 <= number < len(names)
    name = names[number] if is_known and isinstance(number, int) else None
    is_crowd = bool(_values(one.get("attributes")).get("is_crowd"))
    if kind == "bbox":
        return Noted(name, edges_of_size(one.get("bbox")), is_crowd=is_crowd)
    if kind == "polygon":
        return Noted(name, None, _polygon(one.get("points")), is_crowd=is_crowd)
    if kind == "mask":
        return Noted(name, segmentation=one.get("rle"), is_crowd=is_crowd)
    return Noted(name, left_out=str(kind)[:_SHOWN])


def _supervisely(document: Any) -> Iterator[Picture]:
    size = _values(_values(document).get("size"))
    objects = []
    for one in _entries(_values(document).get("objects")):
        name, kind, points = _text(one.get("classTitle")), one.get("geometryType"), _values(one.get("points"))
        corners = points_of(points.get("exterior"))
        if kind == "rectangle":
            (top, left), (bottom, right) = (
                (corners.min(0).tolist(), corners.max(0).tolist()) if len(corners) == 2 else ((0, 0), (0, 0))
            )
            box = edges(left, top, right + 1, bottom + 1) if len(corners) == 2 else None
            objects.append(Noted(name, box))
        elif kind == "polygon":
            holes = points.get("interior")
            rings = holes if isinstance(holes, list) else []
            objects.append(Noted(name, None, _polygon(points.get("exterior"), *rings)))
        elif kind == "bitmap":
            objects.append(Noted(name, None, _bitmap(_values(one.get("bitmap")))))
        else:
            objects.append(Noted(name, left_out=str(kind)[:_SHOWN]))
    objects += [Noted(None, left_out="tag") for _ in _entries(_values(document).get("tags"))]
    yield Picture(None, objects, size_of(size.get("height"), size.get("width")))


def _bitmap(bitmap: Values) -> Shape | None:
    """Return the outline of a PNG file, compressed by zlib and in base64; None if it is none."""
    origin = points_of(bitmap.get("origin"))
    try:
        packed = zlib.decompressobj()
        data = packed.decompress(base64.b64decode(str(bitmap.get("data")), validate=True), MOST_BYTES)
        outline, _ = rings_of_file(data)
    except (ValueError, zlib.error, ImageRejected):
        return None
    rings = [ring + origin[0] for ring in outline] if len(origin) == 1 else []
    return Shape(rings, has_holes=True) if rings else None


def _vott(document: Any) -> Iterator[Picture]:
    for asset in _values(_values(document).get("assets")).values():
        image = _values(_values(asset).get("asset"))
        size = _values(image.get("size"))
        objects = []
        for one in _entries(_values(asset).get("regions")):
            tags = one.get("tags")
            name = _text(tags[0]) if isinstance(tags, list) and len(tags) == 1 else None
            if one.get("type") == "POLYGON":
                points = [[point.get("x"), point.get("y")] for point in _entries(one.get("points"))]
                objects.append(Noted(name, None, _polygon(points)))
            else:
                objects.append(Noted(name, _sized_in(one.get("boundingBox"), "left top width height")))
        yield Picture(_text(image.get("name")), objects, size_of(size.get("height"), size.get("width")))


def _sa_1b(document: Any) -> Iterator[Picture]:
    image = _values(_values(document).get("image"))
    objects = [
        Noted(_WITHOUT_CLASS, edges_of_size(one.get("bbox")), segmentation=one.get("segmentation"))
        for one in _entries(_values(document).get("annotations"))
    ]
    yield Picture(_text(image.get("file_name")), objects, size_of(image.get("height"), image.get("width")))


def _tt100k(document: Any) -> Iterator[Picture]:
    for image in _values(_values(document).get("imgs")).values():
        objects = [
            Noted(_text(one.get("category")), _edges_in(one.get("bbox"), "xmin ymin xmax ymax"))
            for one in _entries(_values(image).get("objects"))
        ]
        path = _text(_values(image).get("path"))
        yield Picture(path, objects, split=SPLIT_OF_FOLDER.get((path or "").partition("/")[0]))


def _labelbox(document: Any) -> Iterator[Picture]:
    for row in _entries(document):
        data, size = _values(row.get("data_row")), _values(row.get("media_attributes"))
        projects = _values(row.get("projects")).values()
        labels = [label for project in projects for label in _entries(_values(project).get("labels"))]
        yield Picture(
            _text(data.get("external_id")) or _text(data.get("global_key")),
            [_of_labelbox(one) for one in _notes_of_labelbox(labels)] if len(labels) < 2 else [],
            size_of(size.get("height"), size.get("width")),
            fault=_SEVERAL if len(labels) > 1 else None,
        )


def _notes_of_labelbox(labels: list[Values]) -> Iterator[Values]:
    for label in labels:
        notes = _values(label.get("annotations"))
        yield from _entries(notes.get("objects"))
        yield from _entries(notes.get("classifications"))


def _of_labelbox(one: Values) -> Noted:
    name = _text(one.get("name"))
    if "bounding_box" in one:
        return Noted(name, _sized_in(one["bounding_box"], "left top width height"))
    if "polygon" in one:
        points = [[point.get("x"), point.get("y")] for point in _entries(one["polygon"])]
        return Noted(name, None, _polygon(points))
    return Noted(name, left_out="further note")


def _whole(read: Callable[[Any], Iterator[Picture]]) -> Callable[[str], Iterator[Picture]]:
    return lambda text: read(json.loads(text))


def _a_line_each(read: Callable[[Any], Iterator[Picture]]) -> Callable[[str], Iterator[Picture]]:
    return lambda text: read([json.loads(line) for line in text.splitlines() if line.strip()])


def _having(start: bytes, *keys: bytes) -> re.Pattern[bytes]:
    """Return what matches the first bytes of JSON that begins so and has these keys with such values."""
    return re.compile(
        rb"\A(?:\xef\xbb\xbf)?" + start + b"".join(rb"(?=.*?" + key + b")" for key in keys), re.DOTALL
    )


def _named(key: bytes) -> re.Pattern[bytes]:
    return re.compile(b'"' + key + rb'"\s*:\s*"([^"]+)"')


_LIST, _OBJECT = rb"\s*\[\s*\{", rb"\s*\{"
DOCUMENTS = (
    Form(
        "BDD100K",
        ".json",
        _having(
            rb'\s*(?:\[|\{\s*"frames"\s*:\s*\[)\s*\{',
            rb'"name"\s*:',
            rb'"(?:box2d|poly2d|rle)"\s*:',
            rb'"category"\s*:',
        ),
        _whole(_scalabel),
        _named(b"name"),
    ),
    Form(
        "CreateML",
        ".json",
        _having(_LIST, rb'"image(?:filename)?"\s*:\s*"', rb'"coordinates"\s*:\s*\{'),
        _whole(_createml),
        _named(b"image(?:filename)?"),
    ),
    Form(
        "CrowdHuman", ".odgt", _having(_OBJECT, rb'"gtboxes"\s*:'), _a_line_each(_crowd_human), _named(b"ID")
    ),
    Form(
        "Datumaro",
        ".json",
        _having(_OBJECT, rb'"categories"\s*:\s*\{', rb'"items"\s*:\s*\['),
        _whole(_datumaro),
        _named(b"path"),
    ),
    Form(
        "Labelbox",
        ".ndjson",
        _having(_OBJECT, rb'"data_row"\s*:', rb'"projects"\s*:'),
        _a_line_each(_labelbox),
        _named(b"external_id"),
    ),
    Form(
        "SA-1B",
        ".json",
        _having(_OBJECT, rb'"image"\s*:\s*\{', rb'"(?:predicted_iou|stability_score)"\s*:'),
        _whole(_sa_1b),
    ),
    Form(
        "Supervisely",
        ".json",
        _having(_OBJECT, rb'"size"\s*:\s*\{', rb'"objects"\s*:\s*\[', rb'"(?:classTitle|tags)"\s*:'),
        _whole(_supervisely),
    ),
    Form(
        "TT100K",
        ".json",
        _having(_OBJECT, rb'"imgs"\s*:\s*\{', rb'"objects"\s*:', rb'"path"\s*:'),
        _whole(_tt100k),
        _named(b"path"),
    ),
    Form(
        "VoTT",
        ".json",
        _having(_OBJECT, rb'"assets"\s*:\s*\{', rb'"regions"\s*:'),
        _whole(_vott),
        re.compile(rb'"asset"\s*:\s*\{[^}]*?"name"\s*:\s*"([^"]+)"'),
    ),
)
