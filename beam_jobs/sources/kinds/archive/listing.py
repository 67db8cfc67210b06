"""List one archive: a row for every member, and one for the archive itself if something is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.reasons import BAD_NAME, BROKEN_CONTAINER, EMPTY_ARCHIVE, OTHER_FILE, REPLACED_MEMBER
from shardmill.beam_jobs.schemas import MEMBER_LISTING_SCHEMA, FileRef, Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns, SourceFault
from shardmill.beam_jobs.sources.kinds.archive.members import (
    LABEL_SIDECARS,
    ArchiveDamaged,
    Member,
    is_sidecar,
)
from shardmill.beam_jobs.sources.kinds.archive.opening import is_archive, members_of
from shardmill.beam_jobs.sources.kinds.box_table.values import text_of
from shardmill.beam_jobs.sources.listing import rows_of_files
from shardmill.infra.storage.locations import stem_of

_CHUNK_ROWS = 2048  # members that are Python values at a time


@dataclass
class ListedArchive:
    """An archive, or another file of the source.

    Attributes:
        uri: URI of the archive.
        batches: MEMBER_LISTING_SCHEMA without labels, a row for each member.
        own: the row of the file itself, if it has one: MEMBER_LISTING_SCHEMA.
        sidecars: stems of the .cls and .json files that were read.
        labels: stem of sidecars (kinds.archive.samples) -> label that they give (WebDataset).
        values: stem of sidecars -> the values that are asked for of them, as JSON, by their keys.
        named: stems of the sidecars whose label is the name of a class.
        unread: names of the sidecars that cannot be read.
    """

    uri: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    own: pa.RecordBatch | None = None
    sidecars: set[str] = field(default_factory=set)
    labels: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)

    def image_names(self) -> Iterator[str]:
        """Yield the names of the members that are to be read."""
        for batch in self.batches:
            rows = zip(batch["uri"].to_pylist(), batch["status"].to_pylist(), strict=True)
            yield from (self.name_of(uri) for uri, status in rows if status == Status.TO_READ)

    def names(self, batch: pa.RecordBatch) -> list[str]:
        """Return the name of each member of a batch."""
        return [self.name_of(uri) for uri in batch["uri"].to_pylist()]

    def name_of(self, uri: str) -> str:
        """Return the name of a member by its URI."""
        return uri[len(self.uri) + 1 :]


def list_archive(
    folder: SourceFolder,
    file: FoundFile,
    ignore: IgnorePatterns,
    settings: SourceConfig,
    asked: Collection[str] = (),
) -> ListedArchive:
    """List the members of an archive; a file that is no archive becomes a row of its own.

    Args:
        folder: the source.
        file: a file of it.
        ignore: the patterns of ``filter.ignore``, which apply to names of members too.
        settings: settings of the source.
        asked: keys of the values of sidecars to keep.
    """
    listed = ListedArchive(file.uri)
    fault = file.fault
    if file.ignored_by is None and fault is None:
        if not is_archive(file.uri):
            fault = SourceFault(OTHER_FILE, "it is no archive: its name ends in no .tar, .tar.gz or .zip")
        elif "#" in file.uri:
            fault = SourceFault(BAD_NAME, "the name of an archive cannot hold a #: rename it")
        else:
            fault = _list_members(folder, file.ref, ignore, settings, listed, asked)
    if fault is not None or file.ignored_by is not None:
        listed.own = rows_of_files([FoundFile(file.ref, file.ignored_by, fault)], MEMBER_LISTING_SCHEMA)
    return listed


def _list_members(
    folder: SourceFolder,
    archive: FileRef,
    ignore: IgnorePatterns,
    settings: SourceConfig,
    listed: ListedArchive,
    asked: Collection[str],
) -> SourceFault | None:
    """Fill in members and labels; return what is wrong with the archive, or None."""
    fault: SourceFault | None = None
    members: list[Member] = []
    try:
        with folder.open_container(archive.uri) as container:
            try:
                for member in members_of(
                    container,
                    is_local=folder.is_local,
                    at_most_bytes=settings.archive.unpacked_bytes,
                    sidecars=_sidecars(settings, asked),
                ):
                    _keep_label(listed, member, settings)
                    if asked:
                        _keep_values(listed, member, settings.columns.label_column, asked)
                    members.append(member)
            except ArchiveDamaged as damage:
                fault = SourceFault(BROKEN_CONTAINER, str(damage))
    except SourceFault as unreadable:
        fault = unreadable
    found = _found(archive, members, ignore)
    while chunk := list(islice(found, _CHUNK_ROWS)):
        listed.batches.append(rows_of_files(chunk, MEMBER_LISTING_SCHEMA))
    if fault is None and not members:
        fault = SourceFault(EMPTY_ARCHIVE, "it has no file in it")
    return fault


def _sidecars(settings: SourceConfig, asked: Collection[str]) -> tuple[str, ...]:
    """Return the endings of the members to read: of a .txt only if its text is asked for."""
    if settings.archive.layout not in ("auto", "webdataset"):
        return ()
    return (*LABEL_SIDECARS, "txt") if "txt" in asked else LABEL_SIDECARS


def _found(archive: FileRef, members: list[Member], ignore: IgnorePatterns) -> Iterator[FoundFile]:
    """Yield the members as files of the source, with unique URIs."""
    last = {member.name: number for number, member in enumerate(members)}
    taken = set(last) if len(last) < len(members) else set()
    for number, member in enumerate(members):
        name, fault = member.name, member.fault
        if last[name] != number:
            name = f"{name}#at={member.position}"
            while name in taken:
                name += "#"
            taken.add(name)
            fault = fault or SourceFault(REPLACED_MEMBER, "a later member of the archive has the same name")
        uri = f"{archive.uri}#{name}"
        ref = FileRef(uri, member.size_bytes, archive.mtime_ns, archive.uri, member.position)
        # The .. of a hostile name is no hidden file.
        is_hostile = fault is not None and fault.reason == BAD_NAME
        yield FoundFile(ref, None if is_hostile else ignore.match_path(member.name.rstrip("/")), fault)


def _keep_label(listed: ListedArchive, member: Member, settings: SourceConfig) -> None:
    """Keep the label that a sidecar gives: the name of a class wins over a .cls, and that over a .json."""
    if member.content is None:
        if member.fault is None and is_sidecar(member.name, 0, LABEL_SIDECARS):
            listed.unread.append(member.name)  # too long
        return
    if not is_sidecar(member.name, 0, LABEL_SIDECARS):
        return  # a caption is no class
    key, is_json = stem_of(member.name), member.name.lower().endswith(".json")
    listed.sidecars.add(key)
    if (_json_value(member.content) if is_json else _text_label(member.content)) is None:
        listed.unread.append(member.name)
    name_key, label_key = settings.archive.name_key, settings.columns.label_column
    name = json_label(member.content, name_key) if is_json and name_key else None
    if name is not None:
        listed.labels[key] = name
        listed.named.add(key)
        return
    if key in listed.named or (is_json and key in listed.labels):
        return
    label = json_label(member.content, label_key) if is_json else _text_label(member.content)
    if label is not None:
        listed.labels[key] = label


def _keep_values(listed: ListedArchive, member: Member, label_key: str, asked: Collection[str]) -> None:
    """Keep values of sidecars: of a .json by their keys, of a .txt its text, of a .cls the label."""
    if member.content is None:
        return
    ending = member.name.rpartition(".")[2].lower()
    found: dict[str, Any] = {}
    if ending == "json":
        values = _json_value(member.content)
        found = {key: values[key] for key in asked if isinstance(values, dict) and key in values}
    else:
        key = label_key if ending == "cls" else ending
        text = _text_label(member.content)
        found = {key: text} if key in asked and text is not None else {}
    kept = listed.values.setdefault(stem_of(member.name), {})
    for key, value in found.items():
        if ending == "json" or key not in kept:
            kept[key] = json.dumps(value)


def _text_label(content: bytes) -> str | None:
    try:
        return content.decode("utf-8").strip() or None
    except UnicodeDecodeError:
        return None


def _json_value(content: bytes) -> Any:
    """Return what a .json sidecar holds; None if it is no JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def json_label(content: bytes, key: str) -> str | None:
    """Return the text or number that a .json sidecar has under a key, or is itself; None if it has none."""
    value = _json_value(content)
    if isinstance(value, dict):
        value = value.get(key)
    try:
        return text_of(value)
    except ValueError:  # a number of thousands of digits
        return None
