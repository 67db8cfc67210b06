"""Frames of video files, in folders named after their classes, or named by a table.

The layouts are those of ``image_folder``; with ``source.table.file`` those of ``table``. The 13th frame in
the order of showing is ``clip.mp4#frame=0000012``; its video is its group, its number and time are features.
``source.options`` say which frames are images: one a second unless they say otherwise.

PyAV decodes: its wheels of 36 MB bring FFmpeg for every Python, and it reads from any file object and tells
time stamps, damage and colours, while torchcodec needs torch and an installed FFmpeg.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import BROKEN_CONTAINER, NO_IMAGE, OTHER_FILE
from shardmill.beam_jobs.schemas import Status, has_masks
from shardmill.beam_jobs.sources.class_names import quoted
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import options_of
from shardmill.beam_jobs.sources.kinds import image_folder, table
from shardmill.beam_jobs.sources.kinds.video.choosing import Options as Options
from shardmill.beam_jobs.sources.kinds.video.choosing import choose
from shardmill.beam_jobs.sources.kinds.video.decoding import FrameReader
from shardmill.beam_jobs.sources.kinds.video.packets import Packets, library, read_packets
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.pages import with_parts
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for
from shardmill.beam_jobs.tables.columns import with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.codecs.formats import ImageRejected, check_pixels
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.features import Feature
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage

ENDINGS = (
    ".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".vob", ".ts", ".mts", ".m2ts",
    ".wmv", ".asf", ".flv", ".ogv", ".mxf",
)  # fmt: skip
DISTRIBUTIONS = ("av",)  # its version is part of the digests
FEATURES = (Feature(name="frame", dtype="int64"), Feature(name="time_seconds", dtype="float32"))

_OUTCOME = ("status", "reason", "message")
_FEATURES = {PREFIX + feature.name: feature.arrow_field(PREFIX) for feature in FEATURES}
_AT_A_TIME = 8  # videos whose time stamps are read


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List the chosen frames of every video, with the label, split and group of the video.

    Raises:
        NotFoundError: there is no such folder or table, or no video in it.
        ConfigError: the options name a video that is not there, or the settings do not fit videos.
        EnvironmentFault: PyAV is not installed.
    """
    library()
    options = options_of(config, Options)
    listing = _videos(folder, config)
    listed = listing.table
    uris, status = listed["uri"].to_pylist(), listed["status"].to_pylist()
    at = [row for row, uri in enumerate(uris) if status[row] == Status.TO_READ and _is_video(uri)]
    if not at:
        raise NotFoundError(
            f"source {folder.uri} holds no video that can be listed", f"videos end in {', '.join(ENDINGS)}"
        )
    options.check_names(uris[row] for row in at)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        looked = pool.map(lambda row: _looked(folder, uris[row], config), at)
        found = dict(zip(at, looked, strict=True))
    return replace(
        listing,
        table=_with_frames(listed, found, options),
        warnings=[*listing.warnings, *_warnings({uris[row]: one for row, one in found.items()})],
    )


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise videos in folders; those beside no folder have no labels, and the user is asked."""
    videos = [uri for uri in glance.ending_in(*ENDINGS) if not uri.endswith(".ts")]  # or TypeScript
    if not videos:
        return None
    folders = sorted({uri.partition("/")[0] for uri in videos if "/" in uri})
    if settings.labels == "none" or settings.table.file is not None or len(folders) > 1:
        return Recognised(f"videos lie in its folders {quoted(folders)}" if folders else "it holds videos")
    named = {"table": {"file": "FILE"}, "columns": {"image": "COLUMN", "label": "COLUMN"}}
    readings = [
        f"{cli_for('video', {'labels': 'none'})} if the videos have no labels",
        f"{cli_for('video', named)} if a table names them",
    ]
    below = sorted({uri.split("/")[1] for uri in videos if uri.count("/") > 1})
    if below:
        place = f"{glance.folder.uri}/{folders[0]}"
        readings.insert(0, f"give {place} as the source if {quoted(below)} are the classes")
    if folders:
        readings.append(f"{cli_for('video', {'layout': 'classes'})} if {quoted(folders)} is their class")
    return Recognised("it holds videos without folders of classes", readings=readings)


def open_reader(folder: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> FrameReader:
    """Open the reader of the workers."""
    return FrameReader(folder, config.image.max_pixels, options_of(config, Options).scenes)


def _is_video(uri: str) -> bool:
    return uri.lower().endswith(ENDINGS)


def _videos(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """Return the listing of the files, as if videos were images.

    Raises:
        ConfigError: columns are given without a table, or a feature has the name of one of frames.
    """
    source = config.source
    if source.table.file is None and (given := list(source.columns.model_dump(exclude_defaults=True))):
        raise ConfigError(
            f"source.columns.{given[0]} is for videos that a table names",
            "name it: --set source.table.file=FILE",
        )
    kind = image_folder if source.table.file is None else table
    named = source.model_copy(update={"kind": kind.__name__.rpartition(".")[2], "options": {}})
    listing: Listing = kind.list_inputs(folder, config.model_copy(update={"source": named}))
    clashing = _FEATURES.keys() & set(listing.table.column_names)
    if has_masks(listing.table) or clashing:
        what = f"the feature {min(clashing).removeprefix(PREFIX)!r}" if clashing else "masks"
        raise ConfigError(f"frames of videos have no {what} of a table", "leave it out, or rename it")
    return listing


def _looked(folder: SourceFolder, uri: str, config: PrepareConfig) -> Packets | SourceFault | ImageRejected:
    """Return the time stamps of a video, or why it cannot be used."""
    try:
        with folder.open_container(uri) as file:
            packets = read_packets(file)
        check_pixels(packets.height, packets.width, config.image.max_pixels)
    except (SourceFault, ImageRejected) as fault:
        return fault
    return packets


def _with_frames(
    listed: pa.Table, found: dict[int, Packets | SourceFault | ImageRejected], options: Options
) -> pa.Table:
    """Return the listing with a row for each chosen frame, and for what is lost of a video."""
    uris, outcomes = listed["uri"].to_pylist(), listed.select(_OUTCOME).to_pylist()
    messages: list[str | None] = [None] * len(uris)
    of_row: list[int] = []
    parts: list[tuple[Any, ...]] = []
    for row, uri in enumerate(uris):
        one = found.get(row)
        if isinstance(one, Packets):
            rows = _rows(uri, one, options)
            parts += rows
            of_row += [row] * len(rows)
            read = sum(part[3] == Status.TO_READ for part in rows)
            messages[row] = f"{read:,} of its {len(one.stamps):,} frames are read"
        elif one is not None:
            outcomes[row] = {"status": Status.QUARANTINED, "reason": one.reason, "message": one.message}
        elif outcomes[row]["status"] == Status.TO_READ:
            outcomes[row] = {"status": Status.FILTERED, "reason": OTHER_FILE, "message": "it is no video"}
    for name in _OUTCOME:
        field = listed.schema.field(name)
        listed = with_column(listed, field, pa.array([outcome[name] for outcome in outcomes], field.type))
    for name in _FEATURES:
        listed = listed.append_column(_FEATURES[name], pa.nulls(len(uris), _FEATURES[name].type))
    names = ("uri", "group", "position", *_OUTCOME, *_FEATURES)
    columns = {name: [part[at] for part in parts] for at, name in enumerate(names)}
    return with_parts(listed, np.array(of_row, np.int64), columns, messages)


def _rows(uri: str, packets: Packets, options: Options) -> list[tuple[Any, ...]]:
    """Return the rows of a video: URI, group, position, status, reason, message, number and time."""
    chosen = choose(uri, packets, options)
    rows: list[tuple[Any, ...]] = [
        (f"{uri}#{options.unit}={number:07}", uri, packets.positions[number], Status.TO_READ, None, None,
         number, float(packets.seconds(number)))
        for number in chosen.numbers
    ]  # fmt: skip
    lost = {name: (NO_IMAGE, why) for name, why in chosen.missing.items()}
    if packets.damage is not None:
        lost[f"{options.unit}={len(packets.stamps):07}"] = (BROKEN_CONTAINER, packets.damage)
    return rows + [
        (f"{uri}#{name}", uri, None, Status.QUARANTINED, *why, None, None) for name, why in lost.items()
    ]


def _warnings(found: dict[str, Packets | SourceFault | ImageRejected]) -> list[str]:
    several = [uri for uri, one in found.items() if isinstance(one, Packets) and one.num_streams > 1]
    if not several:
        return []
    words = f"{counted(len(several), 'file')} with several videos, such as {several[0]}"
    return [f"{words}: of each the one that it marks as default is read, else the first"]
