"""Settle what a request leaves open: a source that is a file or a pattern, and ``source.kind = "auto"``.

Each kind that can be recognised has a function ``recognise(glance, settings)`` in its module. Exactly one of
them must recognise the source. If none does, or several do, the user is asked: nothing is guessed. Folders of
images that annotations or masks describe are not taken for classes.
"""

from __future__ import annotations

import importlib
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.config.known_kinds import built_in_kinds
from shardmill.beam_jobs.config.source import OF_OBJECTS, settings_taken
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources import files_of_settings, kinds
from shardmill.beam_jobs.sources.files.chosen_files import is_pattern
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.recognition.doubts import with_doubts, with_evidence
from shardmill.beam_jobs.sources.recognition.frames import find_frames
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised, cli_for, glance_at
from shardmill.beam_jobs.sources.roles import is_place
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.html.page import differing_settings
from shardmill.infra.progress import log
from shardmill.infra.settings import STORED, validate
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import name_of, uri_of
from shardmill.infra.storage.objects.hub import at_commit, is_repository, without_revision

AUTO = "auto"
# These read folders: a file in place of one is a mistake.
_FOLDER_KINDS = ("image_folder", "lists", "table", "urls", "tfds", *OF_OBJECTS)
_BY_FOLDERS = "image_folder"
_OF_NAMES = (_BY_FOLDERS, "lists", "table", "masks")  # kinds in which an image is a file of its own


def settled(request: JobRequest) -> JobRequest:
    """Return a request whose source is a folder, and whose kind is known.

    A file or a pattern as source becomes its folder with ``source.files``; a revision of the Hub becomes its
    commit. If the dataset has a version of the same source, its settings are kept.

    Raises:
        UsageError: the kind is to be recognised, and none fits, or several do.
        NotFoundError: there is no such source.
    """
    config, location = request.config, at_commit(request.source)
    source = config.source
    if source.kind not in _FOLDER_KINDS and source.files is None:
        location, files = folder_and_files(location)
        source = source.model_copy(update={"files": files})
    if source.kind == AUTO:
        location = _of_hub_cache(location)
        folder, given = SourceFolder(location, only=source.files), source
        left_out = files_of_settings(folder, config)
        glance = glance_at(folder)
        glance = replace(glance, files=[uri for uri in glance.files if uri not in left_out])
        look = partial(_recognised, glance, given)
        given_settings = given.model_dump(exclude_defaults=True, exclude={"kind"})
        previous = _previous_settings(request.root, request.dataset, folder.uri, given_settings)
        source = look() if previous is None else previous.keep(look)
        config = _with_videos(config, source, glance, previous)
    if source is config.source and location == request.source:
        return request
    config = config.model_copy(update={"source": source})
    return request.model_copy(update={"source": location, "config": config})


def _of_hub_cache(location: str) -> str:
    """Return the current revision of a folder that Hugging Face's library keeps (datasets--org--name).

    Its files are links into ``blobs``, and ``refs/main`` names the revision. Other folders stay as they are.
    """
    folder = Path(name_of(location)).expanduser()
    if "://" in location or not (folder / "refs" / "main").is_file():
        return location
    snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text("utf-8", "replace").strip()
    if not snapshot.is_dir() or snapshot.parent.name != "snapshots":
        return location
    log(f"the source is a cache of the Hugging Face hub: its revision {snapshot.name} is read")
    return uri_of(str(snapshot))


def folder_and_files(location: str) -> tuple[str, str | None]:
    """Return the folder of a source, and the path or pattern of its files below it; None for a folder."""
    if "://" in location:
        place, mark, options = location.partition("?")
        place = place.rstrip("/")
        if not is_pattern(place):
            folder, _, name = place.rpartition("/")
            if (
                folder.endswith(("/", ":"))
                or is_repository(location)
                or not _is_object(f"{folder}{mark}{options}", name)
            ):
                return location, None
            return f"{folder}{mark}{options}", uri_of(name)
    else:
        place, mark, options = location.rstrip("/") or "/", "", ""
        path = Path(name_of(place)).expanduser()
        if path.is_dir() or not (path.is_file() or is_pattern(place)):
            return location, None
    folder, _, files = place.rpartition("/")
    while is_pattern(folder):
        folder, _, part = folder.rpartition("/")
        files = f"{part}/{files}"
    return f"{folder or ('/' if place.startswith('/') else '.')}{mark}{options}", files


def recognise(glance: Glance, settings: SourceConfig) -> dict[str, Recognised]:
    """Return the kinds that fit the files of a source, with the reason of each."""
    found = {}
    for kind in built_in_kinds():
        module = importlib.import_module(f"{kinds.__name__}.{kind}")
        if (fits := getattr(module, "recognise", None)) is not None:
            look = cast(Callable[[Glance, SourceConfig], Recognised | None], fits)
            if (seen := look(glance, settings)) is not None:
                found[kind] = seen
    found = {kind: seen for kind, seen in found.items() if _takes_given(kind, settings)}
    found = {kind: seen for kind, seen in found.items() if seen.is_certain} or found
    if "masks" in found and found["masks"].is_certain:  # a list of scenes beside them says less
        found.pop("lists", None)
    others = [seen for kind, seen in found.items() if not _is_by_folders(kind, seen)]
    if any(_describes_all(seen, glance) for seen in others if seen.is_certain or not seen.readings):
        found = {kind: seen for kind, seen in found.items() if not _is_by_folders(kind, seen)}
    if "lists" in found:
        found.pop(_BY_FOLDERS, None)
    if _BY_FOLDERS in found:
        found[_BY_FOLDERS] = with_doubts(found[_BY_FOLDERS], found, glance, settings)
    if settings.label_kind == "class" and settings.layout == "auto":
        for kind in [kind for kind, seen in found.items() if _is_by_folders(kind, seen)]:
            found[kind] = with_evidence(kind, found[kind], glance)
    if any(seen.is_complete and seen.image_folders for seen in found.values()):
        return {kind: seen for kind, seen in found.items() if seen.is_complete}
    return found


def _takes_given(kind: str, settings: SourceConfig) -> bool:
    """Tell whether a kind takes the settings of columns and tables that are given; it refuses others."""
    taken = settings_taken(kind)
    return all(
        group.model_dump(exclude_defaults=True).keys() <= taken.get(name, frozenset())
        for name, group in (("columns", settings.columns), ("table", settings.table))
    )


def _is_by_folders(kind: str, seen: Recognised) -> bool:
    """Tell whether nothing but the names of folders gives the classes."""
    return kind == _BY_FOLDERS or (kind == "lists" and not seen.is_certain)


def _describes_all(seen: Recognised, glance: Glance) -> bool:
    """Tell whether the folders of all images are described, or have names that are not of classes."""
    every = {uri.rpartition("/")[0] for uri in glance.images}
    around = posixpath.commonpath(every) if every else ""
    folders = [folder.removeprefix(around).split("/") for folder in every - set(seen.image_folders)]
    return bool(seen.image_folders) and all(is_place(part) for parts in folders for part in parts if part)


def _with_videos(
    config: PrepareConfig, source: SourceConfig, glance: Glance, previous: PreviousSettings | None
) -> PrepareConfig:
    """Return the settings with videos as groups, where the images of a source are certainly their frames.

    A dataset whose newest version has other groups keeps them: its records have their splits.
    """
    frames = find_frames(glance.images) if source.kind in _OF_NAMES and source.columns.group is None else None
    if frames is None or not frames.is_certain or config.groups.pattern is not None:
        return config
    if previous is not None and previous.pattern != frames.pattern:
        return config
    log(f"the groups are {frames.in_words()}: groups.pattern = {frames.pattern}")
    return config.model_copy(update={"groups": config.groups.model_copy(update={"pattern": frames.pattern})})


def _recognised(glance: Glance, settings: SourceConfig) -> SourceConfig:
    folder = glance.folder
    found = recognise(glance, settings)
    if not found:
        raise UsageError(
            f"no kind of source is recognised in {folder.uri}: it has {glance.in_words()}",
            "say which one with --source-kind KIND; shardmill prepare --help lists them",
        )
    readings = [
        reading
        for kind, recognised in found.items()
        for reading in recognised.readings or [cli_for(kind, recognised.settings)]
    ]
    if len(found) > 1 or any(recognised.readings for recognised in found.values()):
        seen = "; ".join(f"{kind} ({recognised.why})" for kind, recognised in found.items())
        raise UsageError(
            f"the source {folder.uri} may be of several kinds: {seen}"
            if len(found) > 1
            else f"the source {folder.uri} can be read in several ways: {seen}",
            f"say which one: {'; or '.join(readings)}",
        )
    ((kind, recognised),) = found.items()
    log(f"recognised as the kind {kind}: {recognised.why}")
    values = settings.model_dump(exclude_defaults=True) | {"kind": kind}
    values = merged(recognised.settings, values)
    return validate(PrepareConfig, {"source": values}, where="the recognised source").source


def merged(found: Any, given: Any) -> Any:
    """Return found settings, with those that the user gave in their place."""
    if not isinstance(given, dict):
        return given
    return {**found, **{name: merged(found.get(name, {}), value) for name, value in given.items()}}


def _is_object(folder: str, name: str) -> bool:
    try:
        Storage.at(folder).entry(name)
    except NotFoundError:
        return False
    return True


_SHOWN = 4


@dataclass(frozen=True, slots=True)
class PreviousSettings:
    """Settings of the source of a version.

    Attributes:
        ref: ``name@version``.
        source: the settings; their kind is known.
        pattern: ``groups.pattern`` of its configuration.
    """

    ref: str
    source: SourceConfig
    pattern: str | None

    def keep(self, recognise: Callable[[], SourceConfig]) -> SourceConfig:
        """Return these settings, with a warning if the source would be recognised otherwise now.

        Args:
            recognise: returns the settings that fit the source now.
        """
        try:
            found = recognise()
        except UsageError as error:
            log(f"{error.message}; the settings of {self.ref} are kept", level="warning")
            return self.source
        differing = _differing(self.source, found)
        if differing:
            log(
                f"{self.ref} was prepared with {differing}; the settings of {self.ref} are kept. "
                "For others, name the kind (--source-kind) and its settings",
                level="warning",
            )
        return self.source


def _previous_settings(
    root: str, dataset: str, source_uri: str, given: dict[str, Any]
) -> PreviousSettings | None:
    """Return the settings of the newest version, if they are for this source and agree with the given ones.

    Args:
        root: folder of the datasets.
        dataset: name of the dataset.
        source_uri: the source as manifests name it.
        given: settings of the source that are not the usual ones, without the kind.
    """
    newest = Catalog(root).latest(dataset)
    if newest is None or without_revision(newest.manifest.source) != source_uri:
        return None
    try:
        before = SourceConfig.model_validate(newest.manifest.config.get("source", {}), context=STORED)
    except ValidationError:  # written by another release
        return None
    if not _has(before.model_dump(exclude_defaults=True), given):
        return None
    return PreviousSettings(newest.ref, before, newest.manifest.config.get("groups", {}).get("pattern"))


def _has(settings: Any, given: Any) -> bool:
    """Tell whether nested settings have all given values."""
    if not isinstance(given, dict):
        return bool(settings == given)
    return isinstance(settings, dict) and all(_has(settings.get(key), value) for key, value in given.items())


def _differing(before: SourceConfig, found: SourceConfig) -> str:
    """Return the settings that differ, in words; empty if none does."""
    if before.kind != found.kind:
        return f"source.kind = {before.kind}, and the source is recognised as {found.kind} now"
    differing = differing_settings({"source": before.in_use()}, {"source": found.in_use()})
    shown = [f"{name} = {then} (now {now})" for name, (then, now) in list(differing.items())[:_SHOWN]]
    return ", ".join(shown + (["..."] if len(differing) > _SHOWN else []))
