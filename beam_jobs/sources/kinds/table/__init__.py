"""Images that the rows of a table name, with their labels.

Every file of the source and every row of the table becomes one row of the listing. A row and the file that it
names share one. These rows of the table have one of their own, with the URI ``<table>#row=<number>``: rows
without a usable file, and all but one of the rows that name the same file. Rows are counted from 1, without
the header.

    tables      the tables that ``source.table.file`` names, and reading them
    delimited, json_lines, columns  the formats: columns as text, and broken rows as rows with a fault
    rows        what a single row says: its path, label and split, or the reason why it cannot be used
    rules       labels and splits, and the rules by which a row cannot be used
    matching    the file that a row names
    settling    one row of the listing for each file, and for each row that stands for no file
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import MasksConfig, PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import MISSING_FILE, MISSING_MASK, SEVERAL_FILES, SEVERAL_MASKS, SOURCE_TABLE
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, Status
from shardmill.beam_jobs.sources.class_names import class_numbers, look_alikes, no_classes, wanted_classes
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns
from shardmill.beam_jobs.sources.kinds.table.columns import trimmed
from shardmill.beam_jobs.sources.kinds.table.matching import FoundFiles, check_found, find_files, locate
from shardmill.beam_jobs.sources.kinds.table.recognising import FILE_NAME, is_metadata, recognise_table
from shardmill.beam_jobs.sources.kinds.table.rows import (
    UNDERSTOOD_SCHEMA,
    name_rows,
    paths_within,
    settings_warnings,
    understand,
)
from shardmill.beam_jobs.sources.kinds.table.settling import Settled, settle
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_tables, read_tables
from shardmill.beam_jobs.sources.kinds.table.typed.labels import MASK_PATH
from shardmill.beam_jobs.sources.listing import Listing, rows_of_files
from shardmill.beam_jobs.sources.masks import attach_masks, with_reason
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.beam_jobs.sources.roles import split_of_name
from shardmill.beam_jobs.tables.columns import mask_of, with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.progress import log

OF_TABLE = "{folder}"  # value of source.table.prefix: the folder of each table


_CHUNK_ROWS = 2048  # files that are Python values at a time


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with what a table says of it, and every row of the table.

    Raises:
        NotFoundError: there is no such folder or table, no row in it, or no row names a file.
        ConfigError: the table cannot be read as the settings say, or lacks a column that they name.
    """
    columns, kind, prefix = config.source.columns, config.source.label_kind, config.source.table.prefix
    tables = find_tables(folder, config.source.table)
    numbers = class_numbers(columns, folder)
    raw = name_rows(read_tables(tables, config.source), numbers)
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    files = listed_files(walk, [table.uri for table in tables if table.uri is not None])
    folders = _own_folders(raw, tables, files, folder.uri, prefix)
    place = prefix if folders is None else folders.take(raw["table"].combine_chunks())
    paths = paths_within(raw["path"], folder.uri, place)

    def split(rows: pa.Table, found: FoundFiles) -> pa.Table:
        if columns.split is not None or config.source.layout == "classes":
            return rows
        return _with_splits_of_folders(rows, found, files, tables, folders, columns.image)

    listing = list_named(raw, paths, tables, files, config, walk.warnings(), numbers.values(), split)
    if kind != "mask":
        return listing
    prefix = _only(folders, prefix)
    return replace(listing, table=_with_masks(listing.table, files, folder, config, prefix))


def list_named(
    raw: pa.Table,
    paths: pa.ChunkedArray,
    tables: list[Table],
    files: pa.Table,
    config: PrepareConfig,
    warnings: Sequence[str],
    class_names: Collection[str] = (),
    split: Callable[[pa.Table, FoundFiles], pa.Table] = lambda rows, _: rows,
) -> Listing:
    """List files and the rows that name them.

    Args:
        raw: ROWS_SCHEMA and columns of features, the rows of all tables.
        paths: string [rows], path of each image relative to the source.
        tables: the tables.
        files: LISTING_SCHEMA, the files of the source.
        config: settings of the run.
        warnings: of the walk.
        class_names: all labels that there may be; empty for any.
        split: gives rows (UNDERSTOOD_SCHEMA) the splits that their files have.

    Raises:
        NotFoundError: no row names a file.
    """
    columns, kind = config.source.columns, config.source.label_kind
    prefixes = row_prefixes(tables, files)
    rows, found = find_files(understand(raw, columns, paths, prefixes, kind, class_names), files)
    rows = split(rows, found)
    check_found(rows, found, files, raw["path"][0].as_py() if raw.num_rows else None)
    settled = settle(files, rows, found.files)
    classes = settled.classes(kind)
    log(_summary(settled, found.num_inexact))
    more = [*settings_warnings(raw, columns), *class_warnings(classes)]
    return Listing(settled.listing(wanted_classes(classes, config)), [*warnings, *more])


def _only(folders: pa.Array | None, prefix: str) -> str:
    """Return the folder that all paths begin in; the prefix of the settings if there are several."""
    return prefix if folders is None or len(set(folders.to_pylist())) > 1 else str(folders[0].as_py())


def _with_masks(
    listing: pa.Table, files: pa.Table, folder: SourceFolder, config: PrepareConfig, prefix: str
) -> pa.Table:
    """Return the listing with the masks that rows name, in place of their paths."""
    name = PREFIX + MASK_PATH
    paths = paths_within(trimmed(listing[name]), folder.uri, prefix)
    return _attach_named_masks(listing.drop_columns([name]), files, paths, config.source.masks)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise one table with a column of paths and one of labels, beside images."""
    return recognise_table(glance, settings, of_addresses=False)


def listed_files(walk: Iterable[FoundFile], tables: list[str]) -> pa.Table:
    """Return the files of a source; tables in it are left out by a reason.

    Args:
        walk: through the source.
        tables: URIs of the tables.

    Returns:
        LISTING_SCHEMA, without labels.
    """
    batches = [rows_of_files(chunk) for chunk in _chunks(walk)]
    files = pa.Table.from_batches(batches, LISTING_SCHEMA).combine_chunks()
    is_table = pc.is_in(files["uri"], pa.array(tables, pa.string()))
    if not pc.any(is_table).as_py():
        return files
    row = {"status": Status.FILTERED, "reason": SOURCE_TABLE, "message": "it names the images"}
    for name, value in row.items():
        kind = files.schema.field(name).type
        column = pc.if_else(is_table, pa.scalar(value, kind), files[name])
        files = files.set_column(files.schema.get_field_index(name), files.schema.field(name), column)
    return files.combine_chunks()


def _chunks(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    files = iter(files)
    while chunk := list(islice(files, _CHUNK_ROWS)):
        yield chunk


def row_prefixes(tables: list[Table], files: pa.Table) -> list[str]:
    """Return what the URIs of each table's rows begin with; no file has such a name."""
    prefixes = []
    for table in tables:
        prefix = f"{table.name}#row="
        while pc.any(pc.starts_with(files["uri"], prefix)).as_py():
            prefix = prefix.replace("#row=", "##row=")
        prefixes.append(prefix)
    return prefixes


def _summary(settled: Settled, num_inexact: int) -> str:
    """One line about how rows and files were brought together."""
    named = int(np.count_nonzero(settled.representative >= 0))
    ending = f"; {num_inexact:,} rows leave out its ending, or spell it in another way" if num_inexact else ""
    return f"{settled.rows.num_rows:,} rows of the table name {named:,} files{ending}"


def class_warnings(classes: list[str]) -> list[str]:
    """Warn of a single class, and of classes with names that look alike."""
    single = [f"the table has a single class, {classes[0]!r}"] if len(classes) == 1 else []
    return [
        *single,
        *no_classes(classes, "name it in source.columns.drop_labels"),
        *look_alikes(classes, "name one in source.columns.merge_labels"),
    ]


_REASONS = {MISSING_FILE: MISSING_MASK, SEVERAL_FILES: SEVERAL_MASKS}


def _attach_named_masks(
    listing: pa.Table, files: pa.Table, paths: pa.ChunkedArray, settings: MasksConfig
) -> pa.Table:
    """Attach to each image the mask that its row names.

    Args:
        listing: LISTING_SCHEMA and columns of features, sorted by URI.
        files: LISTING_SCHEMA, the files of the source as the walk found them.
        paths: string [rows of the listing], path of each mask relative to the source, with or without its
            ending; null if there is none.
        settings: settings of masks; decide on images without a mask.
    """
    images = np.flatnonzero(listing["status"].to_numpy() == Status.TO_READ)
    here = pa.array(images)
    unknown = pa.nulls(len(images), pa.string())
    columns = dict.fromkeys(UNDERSTOOD_SCHEMA.names, unknown)
    columns |= {"path": paths.take(here), "who": listing["uri"].take(here)}
    rows, found = find_files(pa.table(columns, UNDERSTOOD_SCHEMA), files)
    reasons = np.asarray(pc.fill_null(rows["reason"], "").to_numpy(), np.str_)
    for of_file, of_mask in _REASONS.items():
        lost = np.flatnonzero(reasons == of_file)
        listing = with_reason(listing, images[lost], of_mask, rows["message"].take(pa.array(lost)))
    kept = reasons == ""
    uris = files["uri"].take(pa.array(found.files[kept], mask=found.files[kept] < 0))
    masks = pc.fill_null(pc.index_in(uris, listing["uri"].combine_chunks(), skip_nulls=True), -1)
    return attach_masks(listing, images[kept], np.asarray(masks.to_numpy(), np.int64), settings)


# Tables in folders of the source, beside their images, as of Hugging Face's ImageFolder:
#
#   train/metadata.csv  train/0001.png        file_name: 0001.png
#   test/metadata.csv   test/0001.png         file_name: 0001.png
#
# Paths of such a table begin in its own folder, if no file of the source has them. Then the folders of the
# images give the splits, as in that layout, if each image lies in a folder that names one.
def _own_folders(
    raw: pa.Table, tables: list[Table], files: pa.Table, source: str, given: str
) -> pa.Array | None:
    """Return the folder that the paths of each table begin in: string [tables]; None as the settings say.

    Args:
        raw: ROWS_SCHEMA, the rows of all tables.
        tables: the tables.
        files: LISTING_SCHEMA.
        source: URI of the source.
        given: ``source.table.prefix``.

    Raises:
        ConfigError: the paths of a table name files from the source and other files from its folder.
    """
    folders = [(table.uri or "").rpartition("/")[0] for table in tables]
    if given == OF_TABLE:
        return pa.array(folders)
    if given or not any(folders):
        return None
    for number, folder in enumerate(folders):
        if folder:
            paths = raw["path"].filter(pc.equal(raw["table"], number)).drop_null()
            own, of_source = (_files(paths, source, prefix, files) for prefix in (folder, ""))
            if ((own >= 0) & (of_source >= 0) & (own != of_source)).any():
                raise ConfigError(
                    f"paths of the table {tables[number].name} name files of the source and of {folder}",
                    f"say which: --set source.table.prefix=. (the source) or {OF_TABLE!r} (the table's)",
                )
            if (of_source >= 0).any() or not (own >= 0).any():
                folders[number] = ""
    return pa.array(folders) if any(folders) else None


def _files(paths: pa.ChunkedArray, source: str, prefix: str, files: pa.Table) -> np.ndarray:
    """Return the row of the file that each path names: int64, -1 if there is none."""
    return locate(paths_within(paths, source, prefix).combine_chunks(), files)[0]


def _with_splits_of_folders(
    rows: pa.Table,
    found: FoundFiles,
    files: pa.Table,
    tables: list[Table],
    folders: pa.Array | None,
    path_column: str | None,
) -> pa.Table:
    """Give rows the split that the folders of their images name, if each image has one.

    Args:
        rows: UNDERSTOOD_SCHEMA, without splits.
        found: the files of the rows.
        files: LISTING_SCHEMA.
        tables: the tables. Those of Hugging Face's ImageFolder, and those with paths from their own folder,
            are beside their images.
        folders: as ``_own_folders`` returns them.
        path_column: the column of paths that the settings name.
    """
    are_beside = folders is not None and "" not in folders.to_pylist()
    are_metadata = path_column == FILE_NAME and all(is_metadata(table.path) for table in tables)
    if not are_beside and not are_metadata:
        return rows
    is_found = found.files >= 0
    uris = files["uri"].take(pa.array(found.files, mask=~is_found))
    coded = pc.replace_substring_regex(uris, r"[^/]*$", "").combine_chunks().dictionary_encode()
    named = pa.array(
        [split_of_name(folder.rstrip("/")) for folder in coded.dictionary.to_pylist()], pa.string()
    )
    splits = named.take(coded.indices)
    if not is_found.any() or (mask_of(pc.is_null(splits)) & is_found).any():
        return rows
    log("the folders of the images give the splits")
    return with_column(rows, UNDERSTOOD_SCHEMA.field("split"), splits)
