"""Read each row of a table by itself: the URI of a file, a label, a split, or why it cannot be used."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.config import TableConfig
from beam_jobs.schemas import BAD_PATH, BROKEN_ROW, DROPPED_LABEL, NO_LABEL, UNKNOWN_SPLIT
from beam_jobs.sources.classes.numbers import ClassNumbers, name_labels
from beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from beam_jobs.sources.kinds.table.typed.labels import having_one_of, renamed_labels, with_label_lists
from beam_jobs.tables.features import PREFIX, feature_columns, features_of
from beam_jobs.tables.lists import mask_of, one_chunk, values_of, with_column
from infra.format.features import features_in
from infra.format.labels import LABELS, LabelKind

# The rows of all tables as understood.
UNDERSTOOD_SCHEMA = pa.schema(
    [
        ("row_uri", pa.string()),  # of the row itself
        ("who", pa.string()),  # the row, for people: "row 17 of labels.csv"
        ("path", pa.string()),  # of the file, relative to the source; null if the row names none
        ("label", pa.string()),  # name of the class
        ("split", pa.string()),
        ("group", pa.string()),
        ("reason", pa.string()),  # why the row is no good; null if it is
        ("message", pa.string()),  # the reason in a sentence
    ]
)

_OUTSIDE = r"^/|^[A-Za-z][A-Za-z0-9+.-]*://|(^|/)\.\.(/|$)"
MISSING_LABEL = {"class": "label", "multi": "label", "targets": "number for each target"}
_NO_TEXT = pa.scalar(None, pa.string())


def understand(
    raw: pa.Table,
    settings: TableConfig,
    source: str | None,
    prefixes: list[str],
    kind: LabelKind = "class",
    class_names: Collection[str] = (),
) -> pa.Table:
    """Read paths, labels and splits as the settings say, and find the rows that cannot be used.

    Args:
        raw: ROWS_SCHEMA and columns of features.
        settings: of the table.
        source: URI of the source: absolute paths in it are made relative. None if the paths are addresses,
            which are taken as they are.
        prefixes: what the URIs of the rows of each table begin with.
        kind: of the labels.
        class_names: all labels that there may be, after ``name_rows``; empty for any.

    Returns:
        UNDERSTOOD_SCHEMA and columns of features, in the same order.
    """
    numbers = raw["number"].cast(pa.string())
    tables = pa.array(prefixes).take(raw["table"].combine_chunks())
    names = pa.array([_name(prefix) for prefix in prefixes]).take(raw["table"].combine_chunks())
    paths = raw["path"] if source is None else paths_within(raw["path"], source, settings.prefix)
    is_dropped, stated = dropped(raw, settings.drop_labels, kind), raw["label"]
    raw = merged(raw, settings.merge_labels, kind)
    labels = raw["label"]
    known = pa.array(list(SPLIT_OF_FOLDER))
    splits = renamed(pc.utf8_lower(raw["split"]), SPLIT_OF_FOLDER)
    rows = pa.table(
        {
            "row_uri": pc.binary_join_element_wise(tables, numbers, ""),
            "who": pc.binary_join_element_wise("row ", numbers, " of ", names, ""),
            "path": paths,
            "label": labels,
            "split": splits,
            "group": raw["group"],
            "reason": pa.nulls(raw.num_rows, pa.string()),
            "message": pa.nulls(raw.num_rows, pa.string()),
        },
        UNDERSTOOD_SCHEMA,
    ).combine_chunks()
    for name in feature_columns(features_of(raw)):
        rows = rows.append_column(raw.schema.field(name), raw[name])
    nameless = pc.is_null(raw["path"])
    rows = reject(rows, pc.is_valid(raw["fault"]), BROKEN_ROW, raw["fault"])
    rows = reject(rows, nameless, BAD_PATH, "it names no file")
    if source is not None:
        outside = pc.or_(pc.match_substring_regex(paths, _OUTSIDE), pc.match_substring(paths, "\0"))
        rows = reject(rows, outside, BAD_PATH, "it names ", raw["path"], ", which is outside of the source")
    rows = _without_path(rows)
    rows = reject(
        rows,
        pc.match_substring_regex(raw["label"], r"[\r\n]"),
        BROKEN_ROW,
        "its label reaches over several lines: is a quote not closed?",
    )
    if kind in MISSING_LABEL:
        rows = reject(rows, pc.is_null(labels), NO_LABEL, f"it has no {MISSING_LABEL[kind]}")
    if class_names:
        named = pc.is_in(stated, pa.array(sorted(class_names), pa.string()))
        words = "its label ", stated, " is the number of no named class"
        rows = reject(rows, pc.invert(named), NO_LABEL, *words)
    rows = reject(rows, is_dropped, DROPPED_LABEL, "source.table.drop_labels names its label ", stated)
    strange = pc.and_(pc.is_valid(splits), pc.invert(pc.is_in(pc.utf8_lower(raw["split"]), known)))
    rows = reject(rows, strange, UNKNOWN_SPLIT, "its split is ", raw["split"])
    known_split = pc.if_else(pc.fill_null(strange, False), _NO_TEXT, rows["split"])
    return with_column(rows, UNDERSTOOD_SCHEMA.field("split"), known_split)


def name_rows(raw: pa.Table, names: ClassNumbers) -> pa.Table:
    """Put the names of classes in place of labels that are numbers; numbers without a name stay.

    Args:
        raw: ROWS_SCHEMA and columns of features.
        names: number -> name; if empty, all labels stay as they are.
    """
    texts = raw["label"].combine_chunks()
    labels, _ = name_labels(texts, names)
    at = raw.schema.get_field_index("label")
    return raw.set_column(at, raw.schema.field(at), pc.coalesce(labels, texts))


def dropped(raw: pa.Table, names: Sequence[str], kind: LabelKind) -> pa.Array | pa.ChunkedArray:
    """Return which rows have a label that ``drop_labels`` names: bool [rows].

    Args:
        raw: has the column ``label`` and for kind multi that of the lists of labels.
        names: the labels.
        kind: of the labels.
    """
    if kind == "multi":
        return having_one_of(one_chunk(raw[PREFIX + LABELS]), names)
    is_named = pc.is_in(raw["label"], pa.array(names, pa.string()))
    return pc.and_(is_named, pc.is_valid(raw["label"]))


def merged(raw: pa.Table, names: dict[str, str], kind: LabelKind) -> pa.Table:
    """Give labels the names of ``merge_labels``; ``raw`` as for ``dropped``."""
    if not names:
        return raw
    if kind == "multi":
        name = PREFIX + LABELS
        lists = renamed_labels(one_chunk(raw[name]), names)
        return with_label_lists(raw, lists, features_in(pa.schema([raw.schema.field(name)]))[0].column)
    at = raw.schema.get_field_index("label")
    return raw.set_column(at, raw.schema.field(at), renamed(raw["label"], names))


def reject(rows: pa.Table, chosen: pa.ChunkedArray, reason: str, *words: str | pa.ChunkedArray) -> pa.Table:
    """Give a reason and a message to the chosen rows that have none yet.

    Args:
        rows: UNDERSTOOD_SCHEMA.
        chosen: bool [rows]; null counts as false.
        reason: of beam_jobs.schemas.
        words: of the message behind the name of the row; a column has a value for each row.
    """
    at = np.flatnonzero(mask_of(chosen) & mask_of(pc.is_null(rows["reason"])))
    if not len(at):
        return rows
    taken = pa.array(at)
    parts = [word if isinstance(word, str) else pc.fill_null(word.take(taken), "") for word in words]
    said = pc.binary_join_element_wise(rows["who"].take(taken), ": ", *parts, "")
    places = np.full(rows.num_rows, -1, np.int64)
    places[at] = np.arange(len(at))
    index = pa.array(places, mask=places < 0)
    rows = with_column(
        rows, UNDERSTOOD_SCHEMA.field("message"), pc.coalesce(rows["message"], said.take(index))
    )
    here = pa.array(places >= 0)
    return with_column(
        rows, UNDERSTOOD_SCHEMA.field("reason"), pc.if_else(here, pa.scalar(reason), rows["reason"])
    )


def renamed(texts: pa.ChunkedArray, names: dict[str, str]) -> pa.ChunkedArray:
    """Return texts with those that ``names`` knows in place of the others; the rest is unchanged."""
    if not names:
        return texts
    at = pc.index_in(texts, pa.array(list(names), pa.string()))
    return pc.coalesce(pa.array(list(names.values()), pa.string()).take(at), texts)


def settings_warnings(raw: pa.Table, settings: TableConfig) -> list[str]:
    """Warn of labels that ``drop_labels`` or ``merge_labels`` names, and that no row has."""
    has_lists = PREFIX + LABELS in raw.schema.names
    labels = values_of(raw[PREFIX + LABELS]) if has_lists else raw["label"]
    found = [text for text in pc.unique(labels).to_pylist() if text is not None]
    warnings = []
    for key, names in (("drop_labels", settings.drop_labels), ("merge_labels", tuple(settings.merge_labels))):
        for name in names:
            if name not in found:
                near = difflib.get_close_matches(name, found, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                warnings.append(f"source.table.{key} names {name!r}, which is the label of no row{meant}")
    return warnings


def paths_within(paths: pa.ChunkedArray, source: str, prefix: str) -> pa.ChunkedArray:
    """Return paths relative to the source, with the prefix before those that were relative."""
    root = f"{source.rstrip('/')}/"
    within = pc.starts_with(paths, root)
    cut = pc.utf8_slice_codeunits(paths, len(root))
    absolute = pc.match_substring_regex(paths, "^/|^[A-Za-z][A-Za-z0-9+.-]*://")
    before = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
    relative = pc.if_else(absolute, paths, pc.binary_join_element_wise(before, paths, ""))
    plain = pc.if_else(within, cut, relative)
    # "a//b", "a/./b" and "./a/b" are all the file a/b; an address keeps its slashes.
    tidy = pc.replace_substring_regex(plain, r"/(\./)*(/(\./)*)*", "/")
    tidy = pc.replace_substring_regex(tidy, r"^(\./)+", "")
    return pc.if_else(pc.match_substring(plain, "://"), plain, tidy)


def _without_path(rows: pa.Table) -> pa.Table:
    """Rows that cannot be used so far name no file."""
    return with_column(
        rows, UNDERSTOOD_SCHEMA.field("path"), pc.if_else(pc.is_null(rows["reason"]), rows["path"], _NO_TEXT)
    )


def _name(prefix: str) -> str:
    return prefix.removesuffix("row=").rstrip("#")
