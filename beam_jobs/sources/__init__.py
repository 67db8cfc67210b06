"""Sources: where the images come from, listed as one table and read an image at a time."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import IGNORED, NO_LABEL, NOT_IN_TABLE, OTHER_FILE
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.schemas import has_masks
from shardmill.beam_jobs.sources.files.folder import SourceFolder, folders_of_ours, place_of
from shardmill.beam_jobs.sources.kind_modules import (
    OwnReader,
    Reader,
    Workplace,
    faults_of,
    kind_module,
    own_kind,
)
from shardmill.beam_jobs.sources.listing import Listing, check_listing, group_by_pattern
from shardmill.beam_jobs.sources.pages import PageReader, with_pages
from shardmill.beam_jobs.sources.recognition.frames import find_frames
from shardmill.beam_jobs.sources.recognition.glance import by_endings
from shardmill.beam_jobs.tables.features import PREFIX, features_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LABELS, TARGETS, WORDS
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import name_of

_NAMES_LOOKED_AT = 8192


def open_source(request: JobRequest) -> SourceFolder:
    """Open the source of a request, without the folders in it that Shardmill writes.

    Raises:
        UsageError: the source lies where the dataset is written.
    """
    location = request.source
    place = place_of(location if "://" in location else name_of(location))
    left_out = folders_of_ours(place, request.root, request.dataset)
    config = request.config
    return SourceFolder(location, left_out, config.image.max_bytes, config.source.files)


def fetches(config: PrepareConfig) -> bool:
    """Tell whether the configured kind fetches images before it can list them.

    Raises:
        ConfigError: the kind is not known.
    """
    return hasattr(kind_module(config), "list_fetched")


def list_inputs(source: SourceFolder, config: PrepareConfig, place: Workplace | None = None) -> Listing:
    """List every image of a source, as the configured kind of source sees it.

    Args:
        source: the source.
        config: settings of the run.
        place: where a kind that fetches images may put them; None to list them without fetching.

    Raises:
        NotFoundError: there is nothing there.
        ConfigError: the kind is not known, refuses the folder, or returns a listing that breaks the rules.
    """
    kind_module(config)  # a wrong kind is refused before files are looked for
    named = files_of_settings(source, config)
    config = _ignoring(named, config)
    listing = _without_young(check_listing(_listed(source, config, place), config), config)
    if config.image.pages == "images":
        listing = with_pages(listing, source)
    _check_labels(listing, config)
    listing = _with_label_edits(listing, source, config)
    _check_any_label(listing.table, source, config)
    _check_names(listing, config)
    if config.groups.pattern is not None:
        listing = replace(listing, table=group_by_pattern(listing.table, config.groups.pattern))
    else:
        listing = replace(listing, warnings=[*listing.warnings, *_ungrouped_frames(listing)])
    left_out = [
        f"{place} is in the source and is left out, because Shardmill made it"
        for place in source.left_out
        if Storage.at(place).exists("")
    ]
    # In one chunk: planning takes rows from it, and would make a copy of its own.
    _log_unused(listing.table)
    table = _naming_their_setting(named, listing.table).combine_chunks().unify_dictionaries()
    return replace(listing, table=table, warnings=left_out + listing.warnings)


def _ungrouped_frames(listing: Listing) -> list[str]:
    """Return a warning if images look like frames of videos, and nothing says which belong together."""
    if listing.table["group"].null_count < listing.table.num_rows:
        return []
    frames = find_frames(listing.to_read()["uri"].slice(0, _NAMES_LOOKED_AT).to_pylist())
    if frames is None:
        return []
    are = "are frames" if frames.is_certain else "may be frames"
    return [
        f"images {are} of {frames.in_words()}; {frames.setting} keeps each video in one split"
        + ("" if frames.is_certain else ", if the numbers count its frames")
    ]


def _check_any_label(table: pa.Table, source: SourceFolder, config: PrepareConfig) -> None:
    """Refuse a source whose images should have one class each, and none has one.

    Raises:
        ConfigError: there are images without a label, and no other ones.
    """
    num_without = pc.sum(pc.equal(table["reason"], NO_LABEL)).as_py() or 0
    if (
        config.source.label_kind == "class"
        and num_without
        and not pc.any(pc.is_valid(table["label"])).as_py()
    ):
        raise ConfigError(
            f"none of the {num_without:,} images of {source.uri} has a label",
            "name what holds it with --set source.columns.label=NAME; or say which labels there are: "
            "--set source.labels=multi, targets, mask or none",
        )


def _log_unused(table: pa.Table) -> None:
    """Log how many files of the source the kind does not use, by their endings."""
    unused = table["uri"].filter(pc.is_in(table["reason"], pa.array([IGNORED, NOT_IN_TABLE, OTHER_FILE])))
    if len(unused):
        log(f"not used: {counted(len(unused), 'file')} ({by_endings(unused.to_pylist())})")


def _without_young(listing: Listing, config: PrepareConfig) -> Listing:
    """Leave out files that may still grow, as ``source.min_age_seconds`` asks; a fetched image cannot."""
    if not config.source.min_age_seconds or fetches(config):
        return listing
    newest = time.time_ns() - round(config.source.min_age_seconds * 1e9)
    is_old = pc.less_equal(listing.table["mtime_ns"], newest)
    num_young = listing.table.num_rows - pc.sum(is_old).as_py()
    if not num_young:
        return listing
    log(f"left out for the next version, because they changed just now: {counted(num_young, 'file')}")
    return replace(listing, table=listing.table.filter(is_old))


def _with_label_edits(listing: Listing, source: SourceFolder, config: PrepareConfig) -> Listing:
    """Return a listing with the labels of ``source.label_edits``.

    Raises:
        NotFoundError: there is no such file. DataError: it cannot be read, or contradicts itself.
    """
    if config.source.label_edits is None:
        return listing
    from shardmill.beam_jobs.sources.label_edits import apply_edits, read_label_edits

    edits = read_label_edits(source, config.source.label_edits)
    if not edits.decided:
        log(f"label edits: {counted(edits.num_undecided, 'row')}, none of them decided")
        return listing
    edited = apply_edits(listing.table, edits, config.filter.classes)
    summary = edited.summary
    log(
        f"label edits: {counted(summary.num_labels, 'label')} changed, "
        f"{counted(summary.num_left_out, 'image')} left out, "
        f"{counted(edits.num_undecided, 'row')} without a change"
    )
    return replace(
        listing, table=edited.table, warnings=listing.warnings + edited.warnings, label_edits=summary
    )


def files_of_settings(source: SourceFolder, config: PrepareConfig) -> dict[str, str]:
    """Return URI -> setting that names it, of files in a source that are no inputs: vectors, label edits.

    Raises:
        NotFoundError: there is no such file. ConfigError: the path is wrong.
    """
    named: dict[str, str] = {}
    if config.groups.embeddings.file is not None:
        from shardmill.beam_jobs.sources.embeddings import files_within  # loads what reads Parquet

        named |= dict.fromkeys(files_within(source, config.groups.embeddings), "groups.embeddings.file")
    if config.source.label_edits is not None:
        from shardmill.beam_jobs.sources.label_edits import SETTING, files_of_edits

        named |= dict.fromkeys(files_of_edits(source, config.source.label_edits), SETTING)
    return named


def _ignoring(uris: Iterable[str], config: PrepareConfig) -> PrepareConfig:
    """Return a configuration that ignores some files too; the run and its digests keep the given one."""
    further = [f"/{glob.escape(uri)}" for uri in uris]
    if not further:
        return config
    patterns = (*config.filter.ignore, *further)
    return config.model_copy(update={"filter": config.filter.model_copy(update={"ignore": patterns})})


def _naming_their_setting(named: Mapping[str, str], table: pa.Table) -> pa.Table:
    """Write the setting that names a file, such as groups.embeddings.file, into the message of its row."""
    for setting in sorted(set(named.values())):
        uris = [uri for uri, by in named.items() if by == setting]
        is_one = pc.is_in(table["uri"], pa.array(uris, pa.string()))
        is_one = pc.and_kleene(is_one, pc.equal(table["reason"], IGNORED))
        messages = pc.if_else(pc.fill_null(is_one, False), f"{setting} names it", table["message"])
        at = table.schema.get_field_index("message")
        table = table.set_column(at, table.schema.field(at), messages)
    return table


def _listed(source: SourceFolder, config: PrepareConfig, place: Workplace | None) -> Listing:
    """Return the listing as the configured kind makes it."""
    module = kind_module(config)
    with faults_of(config.source.kind):
        if place is not None and fetches(config):
            fetch = cast(Callable[[SourceFolder, PrepareConfig, Workplace], Listing], module.list_fetched)
            return fetch(source, config, place)
        return cast(Callable[[SourceFolder, PrepareConfig], Listing], module.list_inputs)(source, config)


def _check_labels(listing: Listing, config: PrepareConfig) -> None:
    """Check that a kind of source gives the kind of labels that the settings ask for.

    Raises:
        ConfigError: it does not.
    """
    labels, kind = config.source.label_kind, config.source.kind
    found = set(listing.table.column_names)
    gives = {"multi": PREFIX + LABELS in found, "targets": PREFIX + TARGETS in found}
    gives["mask"] = has_masks(listing.table)
    gives["none"] = listing.table["label"].null_count == listing.table.num_rows
    if not gives.get(labels, True):
        raise ConfigError(
            f"source.labels = {labels!r}, and the kind of source {kind!r} gives {WORDS['class']}",
            "leave source.labels out, or name the images in a table: --set source.kind=table",
        )


def _check_names(listing: Listing, config: PrepareConfig) -> None:
    """Check that a source gives no feature of a name that the metadata of the files have.

    Raises:
        ConfigError: it does.
    """
    wanted = config.image.metadata
    clashing = {feature.name for feature in features_of(listing.table)} & set(wanted)
    if clashing:
        name = min(clashing)
        others = ",".join(each for each in wanted if each not in clashing)
        raise ConfigError(
            f"the source and image.metadata both give a feature {name!r}",
            f"leave it out of image.metadata: --set image.metadata={others or '[]'}; or give the other one "
            f'another name, as in source.columns.features = {{ my_{name} = "{name}" }}',
        )


def open_reader(source: SourceFolder, config: PrepareConfig, scratch: Storage | None = None) -> Reader:
    """Open the reader of the configured kind: the source itself, unless the kind has a reader of its own.

    Args:
        source: the source.
        config: settings of the run.
        scratch: folder of the run that all workers see, where ``make_readable`` may have put something; None
            outside of a run.

    Raises:
        ConfigError: the kind is not known.
    """
    open_kind = getattr(kind_module(config), "open_reader", None)
    if open_kind is None:
        return PageReader(source) if config.image.pages == "images" else source
    kind = config.source.kind
    with faults_of(kind):
        reader = cast(Callable[[SourceFolder, PrepareConfig, Storage | None], Reader], open_kind)(
            source, config, scratch
        )
    return reader if own_kind(kind) is None else OwnReader(reader, kind)


def make_readable(
    source: SourceFolder, config: PrepareConfig, references: pa.Table, scratch: Storage
) -> None:
    """Let the configured kind do what must be done once before its images are read, if there is anything.

    Args:
        source: the source.
        config: settings of the run.
        references: REFERENCE_SCHEMA and maybe MEMBER_COLUMNS, the images that will be read.
        scratch: folder of the run that all workers see. It lasts until the run has published.

    Raises:
        ConfigError: the kind is not known.
    """
    make = getattr(kind_module(config), "make_readable", None)
    if make is not None:
        with faults_of(config.source.kind):
            make(source, config, references, scratch)
