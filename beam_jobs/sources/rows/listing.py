"""The listing of a source whose images are rows of files: a row for each file, and for each row in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, PrepareConfig
from shardmill.beam_jobs.reasons import (
    BROKEN_CONTAINER,
    BROKEN_ROW,
    NO_LABEL,
    OTHER_CLASS,
    OTHER_FILE,
    ROW_FILE,
)
from shardmill.beam_jobs.schemas import MEMBER_LISTING_SCHEMA, Status
from shardmill.beam_jobs.sources.class_names import class_numbers, look_alikes, no_classes, wanted_classes
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import FoundFile, IgnorePatterns, SourceFault
from shardmill.beam_jobs.sources.kinds.table.rules import (
    Rule,
    classes_of,
    first_rules,
    labels_of_no_row,
    understand_labels,
)
from shardmill.beam_jobs.sources.kinds.table.typed.features import joined_features
from shardmill.beam_jobs.sources.listing import Listing, rows_of_files, status_of
from shardmill.beam_jobs.sources.roles import SPLIT_WORDS, split_of_name
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile, RowFileBroken
from shardmill.beam_jobs.sources.rows.typed import TypedRows, count_targets, type_rows, without_lists_of_one
from shardmill.beam_jobs.tables.columns import one_chunk, sorted_by
from shardmill.beam_jobs.tables.features import PREFIX, features_of, with_features
from shardmill.infra.errors import NotFoundError
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.format.known_features import LABELS, LabelKind
from shardmill.infra.progress import log

_DIGITS = 7  # digits of row numbers, so that URIs sort as rows do
_ROW_URI = re.compile(r"(.+)#([^#]+)=(\d+)", re.DOTALL)


@dataclass(frozen=True)
class Contents:
    """The content that a kind found in the files of a source.

    Attributes:
        files: all files of the source.
        rows: rows of the row files, in order.
        broken: URI -> why a row file cannot be read at all.
        others: URI -> what a file is that belongs to the row files, such as their labels.
        warnings: warnings of the walk.
    """

    files: Sequence[FoundFile]
    rows: Sequence[FileRows]
    broken: Mapping[str, str]
    others: Mapping[str, str]
    warnings: Sequence[str]


def walk_files(folder: SourceFolder, config: PrepareConfig) -> tuple[list[FoundFile], list[str]]:
    """Return all files of a source and the warnings of the walk.

    Raises:
        NotFoundError: there is no such folder.
    """
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    return list(walk), walk.warnings()


def read_all(
    folder: SourceFolder, chosen: Sequence[FoundFile], read: Callable[[RowFile], FileRows]
) -> tuple[list[FileRows], dict[str, str]]:
    """Read what the row files hold; return their rows, and why some cannot be read at all."""
    rows, broken = [], {}
    for found in chosen:
        try:
            rows.append(read(RowFile(folder, found.uri, found.ref.mtime_ns)))
        except (RowFileBroken, SourceFault) as error:
            broken[found.uri] = getattr(error, "message", str(error))
            log(f"{found.uri} cannot be read, and its images are lost: {broken[found.uri]}", level="warning")
    return rows, broken


def list_contents(folder: SourceFolder, config: PrepareConfig, contents: Contents) -> Listing:
    """Return the listing: MEMBER_LISTING_SCHEMA, sorted by URI.

    Raises:
        NotFoundError: no row file has a row. ConfigError: the names of classes in the settings are wrong.
    """
    settings, by_name = config.source.columns, config.source.rows.splits_from_names
    names = class_numbers(settings, folder)
    # Masks are no labels of rows: they are read with the images.
    kind: LabelKind = "none" if config.source.label_kind == "mask" else config.source.label_kind
    files = without_lists_of_one(contents.rows)
    num_targets = count_targets(files)
    typed = [type_rows(rows, settings, kind, names or rows.names, num_targets) for rows in files]
    tables = [
        understand(*each, settings, kind, splits_from_names=by_name)
        for each in zip(files, typed, strict=True)
    ]
    if not any(table.num_rows for table in tables):
        why = next(iter(contents.broken.values()), "they are empty")
        raise NotFoundError(f"the files of the source hold no image: {why}", "look at the first file")
    rows = _with_features(pa.concat_tables(tables), files, typed, settings)
    classes = classes_of(rows, kind)
    rows = _without_other_classes(rows, wanted_classes(classes, config))
    listed = _listed(rows)
    files_listed = _files(contents)
    for column in listed.schema.names[len(MEMBER_LISTING_SCHEMA) :]:
        field = listed.schema.field(column)
        files_listed = files_listed.append_column(field, pa.nulls(files_listed.num_rows, field.type))
    listed = sorted_by(pa.concat_tables([files_listed, listed]).unify_dictionaries(), "uri")
    warnings = [*contents.warnings, *_warnings(rows, classes), *_unused(settings, contents, typed)]
    return Listing(listed, warnings)


def understand(
    rows: FileRows, typed: TypedRows, settings: ColumnsConfig, kind: LabelKind, *, splits_from_names: bool
) -> pa.Table:
    """Understand the labels and splits of a file's rows.

    Args:
        rows: rows of the file.
        typed: its labels.
        settings: which labels are dropped and merged.
        kind: kind of the labels.
        splits_from_names: whether the name of the file gives the split of rows without one.

    Returns:
        MEMBER_LISTING_SCHEMA without ``status``, and for kinds multi and targets the column of the labels.
    """
    count = len(rows.positions)
    numbers = pa.array(range(count), pa.int64()).cast(pa.string())
    faults = one_chunk(typed.table["fault"])
    said = rows.splits if rows.splits is not None else pa.nulls(count, pa.string())
    unnamed = Rule(pc.is_valid(typed.unnamed), NO_LABEL, (typed.unnamed,))
    understood = understand_labels(typed.table, said, SPLIT_WORDS, settings, kind, unnamed)
    rules = [Rule(pc.is_valid(faults), BROKEN_ROW, (faults,)), *understood.rules]
    reasons, messages = first_rules(rules, count)
    labelled, splits = understood.table, understood.splits
    given = rows.split or (split_of_name(rows.file.uri) if splits_from_names else None)
    if given:
        splits = pc.if_else(pc.is_null(said), pa.scalar(given), splits)
    file = rows.file
    table = pa.table(
        {
            "uri": pc.binary_join_element_wise(f"{file.uri}#{rows.unit}=", _padded(numbers), ""),
            "size_bytes": pa.array(rows.sizes, pa.int64()),
            "mtime_ns": pa.repeat(pa.scalar(file.mtime_ns, pa.int64()), count),
            "label": one_chunk(labelled["label"]),
            "split": splits,
            "group": rows.groups if rows.groups is not None else pa.nulls(count, pa.string()),
            "reason": reasons,
            "message": messages,
            "container": pa.repeat(file.uri, count).dictionary_encode(),
            "position": pa.array(rows.positions, pa.int64()),
        }
    )
    for name in labelled.schema.names:
        if name.startswith(PREFIX):
            table = table.append_column(labelled.schema.field(name), labelled[name])
    if rows.damage is None:
        return table
    uri = f"{file.uri}#{rows.unit}={count:0{_DIGITS}}"
    log(f"{uri} and all behind it cannot be read: {rows.damage}", level="warning")
    return pa.concat_tables([table, _lost_rest(table.schema, uri, file.mtime_ns, rows.damage)])


def row_of(uri: str) -> tuple[str, str, int] | None:
    """Return file, unit and number of the row that a URI of ``understand`` names; None if it names none."""
    found = _ROW_URI.fullmatch(uri)
    return None if found is None else (found[1], found[2], int(found[3]))


def _lost_rest(schema: pa.Schema, uri: str, mtime_ns: int, damage: str) -> pa.Table:
    """The one row that stands for all rows behind the damage of a file."""
    values = {"uri": uri, "size_bytes": 0, "mtime_ns": mtime_ns, "reason": BROKEN_CONTAINER}
    values["message"] = f"{damage}; this and all rows behind it are lost"
    columns = [
        pa.array([values.get(name)], kind) for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _padded(numbers: pa.Array) -> pa.Array:
    return pc.utf8_lpad(numbers, _DIGITS, "0")


def _with_features(
    rows: pa.Table, files: Sequence[FileRows], typed: Sequence[TypedRows], settings: ColumnsConfig
) -> pa.Table:
    """Add the further features, which have one type in all files; the row of a damage has none."""
    parts = [
        {
            name: replace(column, values=pa.concat_arrays([column.values, pa.nulls(1, column.values.type)]))
            if file.damage is not None
            else column
            for name, column in one.features.items()
        }
        for file, one in zip(files, typed, strict=True)
    ]
    features = joined_features(parts, settings.further)
    for field in features.schema:
        rows = rows.append_column(field, features[field.name])
    return rows


def _without_other_classes(rows: pa.Table, wanted: frozenset[str] | None) -> pa.Table:
    """Leave out the good rows whose class ``filter.classes`` does not name."""
    if wanted is None:
        return rows
    keeps = pc.is_in(rows["label"], pa.array(sorted(wanted), pa.string()))
    other = pc.and_(pc.is_null(rows["reason"]), pc.invert(keeps))
    text = pa.scalar("filter.classes does not name its class")
    for name, value in (("message", text), ("reason", pa.scalar(OTHER_CLASS))):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.if_else(other, value, rows[name]))
    return rows


def _listed(rows: pa.Table) -> pa.Table:
    """Add the status that each reason has: MEMBER_LISTING_SCHEMA and columns of features."""
    schema = with_features(MEMBER_LISTING_SCHEMA, features_of(rows))
    return rows.append_column("status", status_of(rows["reason"])).select(schema.names).cast(schema)


def _files(contents: Contents) -> pa.Table:
    """The files themselves: a row file that was read, one that is broken, and all that are no row files."""
    table = pa.Table.from_batches([rows_of_files(contents.files, MEMBER_LISTING_SCHEMA)])
    outcomes: dict[str, tuple[Status, str, str]] = {
        rows.file.uri: (Status.FILTERED, ROW_FILE, "it holds the images") for rows in contents.rows
    }
    outcomes |= {uri: (Status.FILTERED, ROW_FILE, what) for uri, what in contents.others.items()}
    outcomes |= {uri: (Status.QUARANTINED, BROKEN_CONTAINER, why) for uri, why in contents.broken.items()}
    other = (Status.FILTERED, OTHER_FILE, "it is no file of the kind that source.kind names")
    columns = table.to_pydict()
    for at, uri in enumerate(columns["uri"]):
        if columns["status"][at] == Status.TO_READ:
            found = outcomes.get(uri, other)
            columns["status"][at], columns["reason"][at], columns["message"][at] = found
    return pa.Table.from_pydict(columns, MEMBER_LISTING_SCHEMA)


def _warnings(rows: pa.Table, classes: list[str]) -> list[str]:
    warnings = []
    splits = set(pc.unique(rows["split"]).to_pylist())
    if splits - {None} and None not in splits:
        missing = [name for name in SPLITS if name not in splits]
        if missing:
            warnings.append(f"the source gives its splits, but no {' and no '.join(missing)}")
    if len(classes) == 1:
        warnings.append(f"the source has a single class, {classes[0]!r}")
    warnings += no_classes(classes, "name it in source.columns.drop_labels")
    return warnings + look_alikes(classes, "name one in source.columns.merge_labels")


def _unused(settings: ColumnsConfig, contents: Contents, typed: Sequence[TypedRows]) -> list[str]:
    """Warn of names in ``drop_labels`` and ``merge_labels`` that no row has."""
    if settings.classes_file or not (settings.drop_labels or settings.merge_labels):
        return []
    found: set[str | None] = set(settings.class_names)
    for rows in contents.rows:
        found.update(pc.unique(rows.labels).to_pylist())
        found.update(rows.names.values())
    for one in typed:
        if PREFIX + LABELS in one.table.schema.names:
            found.update(pc.unique(one_chunk(one.table[PREFIX + LABELS]).flatten()).to_pylist())
    return labels_of_no_row(settings, sorted(name for name in found if name is not None))
