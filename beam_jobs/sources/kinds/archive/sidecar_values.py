"""Read labels of other kinds than one class, and further features, from the sidecars of WebDataset samples.

The sidecars of an image are those of its whole name, of a part of it, or of its sample. The key of a sample
is a name up to the first dot of its last part. Names may have further dots all the same::

    0001.jpg       0001.cls                        a sample with one image
    0001.left.jpg  0001.right.jpg  0001.cls        one label for both images of a sample
    0001.img.jpg   0001.label.cls                  also when no name goes on with another
    22.05.jpg      22.05.cls       22.06.jpg ...   names with dots: an image each, and not one sample "22"
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ColumnsConfig, PrepareConfig
from shardmill.beam_jobs.reasons import BROKEN_ROW, NO_LABEL
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.class_names import ClassNumbers
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.kinds.archive.listing import ListedArchive
from shardmill.beam_jobs.sources.kinds.table.columns import trimmed
from shardmill.beam_jobs.sources.kinds.table.json_lines import JsonColumn, read_json_column
from shardmill.beam_jobs.sources.kinds.table.rules import Rule, first_rules, understand_labels
from shardmill.beam_jobs.sources.kinds.table.typed.features import joined_features
from shardmill.beam_jobs.sources.listing import status_of
from shardmill.beam_jobs.sources.rows.row_files import FileRows, RowFile
from shardmill.beam_jobs.sources.rows.typed import TypedRows, count_targets, type_rows
from shardmill.beam_jobs.tables.columns import is_listed, one_chunk, with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import LabelKind
from shardmill.infra.storage.locations import stem_of


def sample_key(name: str) -> str:
    """Return the key of the sample that a member belongs to: its name up to the first dot."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"


class Sidecars:
    """Finds the sidecars of images, by their stems.

    Args:
        stems: names of the sidecars without ending.
        images: names of the images.
    """

    def __init__(self, stems: Iterable[str], images: Iterable[str]) -> None:
        self._stems = frozenset(stems)
        self._of_sample: dict[str, list[str]] = {}
        for stem in sorted(self._stems):
            if (key := sample_key(stem)) != stem:
                self._of_sample.setdefault(key, []).append(stem)
        # Samples in which a sidecar has the whole name of an image: their names have dots.
        dotted = self._stems.intersection(map(stem_of, images))
        self._dotted = {key for stem in dotted if (key := sample_key(stem)) != stem}

    def of(self, name: str) -> list[str]:
        """Return the stems of the sidecars that describe an image; none if there is none.

        The first that is there: the whole name, a part of it up to a dot, or all of the sample if their names
        do not go on with those of images.
        """
        for stem in _beginnings(stem_of(name)):
            if stem in self._stems:
                return [stem]
        key = sample_key(name)
        return [] if key in self._dotted else self._of_sample.get(key, [])


def _beginnings(stem: str) -> Iterator[str]:
    """Yield a stem and what is left of it without the parts behind its dots, the longest first."""
    key = sample_key(stem)
    while len(stem) > len(key):
        yield stem
        stem = stem.rpartition(".")[0]
    yield key


_NO_TEXT = pa.scalar(None, pa.string())


def asked_values(settings: ColumnsConfig, kind: LabelKind) -> list[str]:
    """Return the keys of the ``.json`` sidecars whose values are read besides the one class of an image."""
    keys = [settings.label_column] if kind in ("multi", "targets") else []
    keys += [key for key in (settings.split, settings.group) if key is not None]
    return list(dict.fromkeys([*keys, *(one.column or name for name, one in settings.further.items())]))


def with_values(
    table: pa.Table,
    archives: Sequence[ListedArchive],
    config: PrepareConfig,
    folder: SourceFolder,
    names: ClassNumbers,
) -> pa.Table:
    """Fill in what the sidecars say besides one class.

    Args:
        table: MEMBER_LISTING_SCHEMA.
        archives: with the values of their sidecars.
        config: settings of the run.
        folder: the source.
        names: number -> name of the classes.

    Returns:
        MEMBER_LISTING_SCHEMA and columns of features.

    Raises:
        ConfigError: the values of a key have no common type.
    """
    settings, kind = config.source.columns, config.source.label_kind
    label_key = settings.label_column
    lists_of = label_key if kind in ("multi", "targets") else None
    columns, contradictions = _columns(table, archives, asked_values(settings, kind), lists_of)
    asked = {
        name: one.model_copy(
            update={
                "column": one.column or name,
                "dtype": _dtype(name, one.dtype, columns[one.column or name]),
            }
        )
        for name, one in settings.further.items()
    }
    label = columns.get(label_key) if kind in ("multi", "targets") else None
    rows = FileRows(
        RowFile(folder, "the sidecars", 0),
        positions=np.zeros(table.num_rows, np.int64),
        sizes=np.zeros(table.num_rows, np.int64),
        labels=one_chunk(table["label"]),
        faults=_faults(columns, contradictions, table.num_rows),
        label_values=None if label is None else one_chunk(label.values),
        label_name=label_key,
        columns={name: one_chunk(column.values) for name, column in columns.items()},
    )
    read = ColumnsConfig(features=asked)
    typed = type_rows(rows, read, kind, names if kind == "multi" else {}, count_targets([rows]))
    features = joined_features([typed.features], asked)
    table = _settled(table, typed, _texts(columns, settings.split, table.num_rows), settings, kind)
    groups = _texts(columns, settings.group, table.num_rows)
    table = with_column(table, table.schema.field("group"), pc.coalesce(groups, table["group"]))
    for field in features.schema:
        table = table.append_column(field, features[field.name])
    return table


def _columns(
    table: pa.Table, archives: Sequence[ListedArchive], keys: Collection[str], lists_of: str | None
) -> tuple[dict[str, JsonColumn], dict[int, str]]:
    """Return the values of each key for the images that are to be read, null for all other rows.

    Of the key ``lists_of`` a single value is a list of one.

    Returns:
        The columns by their key, and why rows have several values.
    """
    by_uri = {archive.uri: (archive, Sidecars(archive.values, archive.image_names())) for archive in archives}
    contradictions: dict[int, str] = {}
    texts: dict[str, list[str | None]] = {key: [] for key in keys}
    rows = zip(*(table[name].to_pylist() for name in ("uri", "container", "status")), strict=True)
    for row, (uri, container, status) in enumerate(rows):
        values: dict[str, str] = {}
        if status == Status.TO_READ and container in by_uri:
            archive, sidecars = by_uri[container]
            for stem in sidecars.of(archive.name_of(uri)):
                for key, text in archive.values[stem].items():
                    if values.setdefault(key, text) != text:
                        contradictions[row] = f"sidecars of its sample give it several values of {key}"
        for key in keys:
            said = values.get(key)
            if key == lists_of and said is not None and said[0] not in "[{n":
                said = f"[{said}]"
            texts[key].append(said)
    return {
        key: read_json_column(pa.chunked_array([pa.array(text, pa.string())])) for key, text in texts.items()
    }, contradictions


def _dtype(name: str, asked: str, column: JsonColumn) -> str:
    if asked != "auto":
        return asked
    if column.kind == "mixed":
        raise ConfigError(
            f"the feature {name!r} of the sidecars holds numbers and texts",
            f"say which: --set source.columns.features.{name}.dtype=text",
        )
    return column.kind or "text"


def _faults(columns: Mapping[str, JsonColumn], contradictions: Mapping[int, str], count: int) -> pa.Array:
    messages = dict(contradictions)
    for key, column in columns.items():
        for row, fault in column.faults.items():
            messages.setdefault(row, f"its {key} {fault}")
    return pa.array([messages.get(row) for row in range(count)], pa.string())


def _texts(columns: Mapping[str, JsonColumn], key: str | None, count: int) -> pa.Array:
    """Return the texts of a key: string [rows]; null where there is none, or a list."""
    if key is None or is_listed(columns[key].values.type):
        return pa.nulls(count, pa.string())
    return trimmed(one_chunk(columns[key].values))


def _settled(
    table: pa.Table, typed: TypedRows, splits: pa.Array, settings: ColumnsConfig, kind: LabelKind
) -> pa.Table:
    """Settle the images whose values cannot be used, and fill in labels and splits."""
    faults = one_chunk(typed.table["fault"])
    rules = [Rule(pc.is_valid(faults), BROKEN_ROW, (faults,))]
    if kind in ("multi", "targets"):
        unnamed = Rule(pc.is_valid(typed.unnamed), NO_LABEL, (typed.unnamed,))
        understood = understand_labels(typed.table, splits, SPLIT_OF_FOLDER, settings, kind, unnamed)
    else:  # the one class of an image is settled already
        understood = understand_labels(typed.table, splits, SPLIT_OF_FOLDER, ColumnsConfig(), "none")
    reasons, messages = first_rules([*rules, *understood.rules], table.num_rows)
    labelled = understood.table
    is_to_read = pc.equal(table["status"], int(Status.TO_READ))
    is_lost = pc.and_(is_to_read, pc.is_valid(reasons))
    found = {
        "message": pc.if_else(is_lost, messages, table["message"]),
        "reason": pc.if_else(is_lost, reasons, table["reason"]),
        "status": pc.if_else(is_lost, status_of(reasons), table["status"]),
        "split": pc.coalesce(understood.splits, table["split"]),
    }
    if kind in ("multi", "targets"):
        found["label"] = pc.if_else(is_to_read, labelled["label"], _NO_TEXT)
    for name, column in found.items():
        table = with_column(table, table.schema.field(name), column)
    for name in labelled.schema.names:
        if name.startswith(PREFIX):
            table = table.append_column(labelled.schema.field(name), labelled[name])
    return table
