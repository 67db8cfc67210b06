"""The previous version of a dataset: its records and inputs, and how much of them is still valid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from shardmill.beam_jobs.config import FilterConfig, PrepareConfig
from shardmill.beam_jobs.execution.verdicts import reasons_to_retry
from shardmill.beam_jobs.plan import HeldShards, PreviousRecords
from shardmill.beam_jobs.plan.columns import Codes, split_codes
from shardmill.beam_jobs.reasons import MASK_REASONS, PASSING_REASONS, VERDICT_REASONS
from shardmill.beam_jobs.schemas import PLAN_SCHEMA, PREVIOUS_RECORDS_SCHEMA
from shardmill.beam_jobs.tables.columns import find_ids, in_one_chunk, mask_of, with_short_offsets
from shardmill.beam_jobs.tables.features import PREFIX, feature_columns, with_features
from shardmill.beam_jobs.tables.ids import UInt64, digest_bytes, hex_bytes, hex_text, record_ids
from shardmill.infra.codecs import COLORS, RULES, SCALED_DECODING
from shardmill.infra.codecs.geometry import Mask, geometry, upright_sizes
from shardmill.infra.codecs.jpeg.planes import decoding_scale
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, ShardmillError, StorageError
from shardmill.infra.format.contract import INPUTS_SCHEMA, RECORD, SPLITS, Manifest, Shard
from shardmill.infra.format.features import Feature
from shardmill.infra.preparation import Preparation
from shardmill.infra.settings import STORED
from shardmill.infra.storage.objects.hub import without_revision


@dataclass(frozen=True)
class Reuse:
    """The parts of the previous version that are still valid.

    Attributes:
        contents: images are stored and filtered in the same way, by the same libraries.
        uris: and it is of the same source.
        shards: and records are cut into shards in the same way.
        new_rules: RULES of shardmill.infra.codecs by which some images are now stored in another way.
        image: how images are stored; None without new rules.
    """

    contents: bool
    uris: bool
    shards: bool
    new_rules: frozenset[str] = frozenset()
    image: Preparation | None = None


class PreviousVersion:
    """The version that a run plans on top of.

    Args:
        version: the newest.
        reuse: how much of it is still valid.
        damaged: paths of shards from which records could not be copied.

    Attributes:
        version, reuse: as given.
    """

    def __init__(self, version: DatasetVersion, reuse: Reuse, damaged: Collection[str] = ()) -> None:
        self.version = version
        self.reuse = reuse
        present = version.present_files()
        self._present = [
            shard.path not in damaged
            and present.get(shard.path) == shard.num_bytes
            and present.get(shard.index_path) == shard.index_bytes
            for shard in version.manifest.shards
        ]

    @property
    def is_whole(self) -> bool:
        """Tell whether all its shards are there, as far as names, sizes, indexes and ``damaged`` tell.

        If not, no shard is inherited: the new version is written as a whole, which also repairs this one
        where the same plan wrote it.
        """
        return all(self._present) and len(self.ids) == sum(shard.num_examples for shard in self._shards)

    @property
    def records(self) -> pa.Table:
        """The records of all sound shards: PREVIOUS_RECORDS_SCHEMA and columns of features, sorted by id.

        In one chunk; long columns have 64-bit offsets (``tables.columns``).
        """
        return self._indexes[0]

    @property
    def ids(self) -> UInt64:
        """The ids of ``records``: uint64 [N], rising."""
        return self._indexes[1]

    @cached_property
    def valid(self) -> Mask:
        """The ``records`` whose source would be stored with the same bytes now: bool [N]."""
        valid = np.ones(self.records.num_rows, np.bool_)
        if COLORS in self.reuse.new_rules:
            valid &= ~_may_have_other_colors(self.records)
        if SCALED_DECODING in self.reuse.new_rules and self.reuse.image is not None:
            valid &= ~_is_decoded_scaled(self.records, self.reuse.image)
        return valid

    @cached_property
    def _indexes(self) -> tuple[pa.Table, UInt64]:
        """The records of all sound shards, and their ids."""
        schema = with_features(PREVIOUS_RECORDS_SCHEMA, self.features)
        tables = [schema.empty_table()]
        for number, shard in enumerate(self._shards):
            if not self._present[number]:
                continue
            try:
                index = self.version.checked_table(shard.index_path, shard.index_sha256)
            except (CorruptDataError, StorageError):
                continue  # the shard is treated as missing
            tables.append(_records_of(index, number, schema))
        records = in_one_chunk(pa.concat_tables(tables))
        ids = record_ids(digest_bytes(records["sha256"]))
        order = np.argsort(ids)
        return records.take(pa.array(order)), ids[order]

    def read_inputs(self) -> pa.Table | None:
        """Read the rows of all inputs (INPUTS_SCHEMA); None if they are damaged."""
        parts = [INPUTS_SCHEMA.empty_table()]
        try:
            parts += [
                self.version.checked_table(part.path, part.sha256) for part in self.version.manifest.inputs
            ]
        except (CorruptDataError, StorageError):
            return None
        return pa.concat_tables(parts)

    @cached_property
    def planned(self) -> PreviousRecords:
        """Return the records, classes and shards that a plan builds on."""
        ids, splits = self.ids, self._splits()
        keeps_shards = self.reuse.shards and self.is_whole and self.valid.all()
        held = self._held(splits) if keeps_shards else None
        if not self.is_whole and (inputs := self.read_inputs()) is not None:
            rows = inputs.filter(pc.equal(inputs["outcome"], RECORD))
            ids = record_ids(hex_bytes(rows["record_id"], 8))
            order = np.argsort(ids)
            ids, splits = ids[order], split_codes(rows["split"])[order]
        manifest = self.version.manifest
        has_records = {
            name for split in manifest.splits.values() for name, count in split.class_counts.items() if count
        }
        empty = frozenset(manifest.classes) - has_records
        return PreviousRecords(ids, splits, tuple(manifest.classes), held, manifest.label_kind, empty)

    def _splits(self) -> Codes:
        """The split of each of ``records``: int8 [N], index into SPLITS."""
        of_shard = np.array([SPLITS.index(shard.split) for shard in self._shards], np.int8)
        return of_shard[self.records["shard"].to_numpy()] if len(self.ids) else np.empty(0, np.int8)

    @property
    def features(self) -> list[Feature]:
        """The further features of its records."""
        return self.version.manifest.extra_features

    @property
    def _shards(self) -> list[Shard]:
        return self.version.manifest.shards

    def _held(self, splits: Codes) -> HeldShards:
        return HeldShards(
            ids=self.ids,
            shards=self.records["shard"].to_numpy(),
            labels=self.records["label"].to_numpy(),
            splits=splits,
            said=self.records.select(["source_uri", "group", *feature_columns(self.features)]),
            sizes=np.array([shard.num_examples for shard in self._shards], np.int64),
        )

    def all_records(self) -> tuple[pa.Table, Codes]:
        """Every record as a compaction copies it, sorted by id, and the split of each.

        The records are PLAN_SCHEMA and columns of features.
        """
        records = with_short_offsets(self.records)
        columns = {name: records[name] for name in records.column_names} | {
            "id": hex_text(digest_bytes(self.records["sha256"])[:, :8]),
            "block": pa.nulls(records.num_rows, pa.int32()),
        }
        schema = with_features(PLAN_SCHEMA, self.features)
        table = pa.table({name: columns[name] for name in schema.names}).cast(schema)
        return table, self.planned.splits

    def stored_lengths(self, ids: UInt64) -> npt.NDArray[np.int64]:
        """The length of the stored record of each id (bytes): int64 [M]; 0 if there is none."""
        at, found = find_ids(self.ids, ids)
        if not len(self.ids):
            return np.zeros(len(ids), np.int64)
        return np.where(found, self.records["length_bytes"].to_numpy()[at], 0)


def _records_of(index: pa.Table, number: int, schema: pa.Schema) -> pa.Table:
    """The records of one shard: PREVIOUS_RECORDS_SCHEMA and columns of features."""
    digests = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(32), index.num_rows, [None, pa.py_buffer(hex_bytes(index["sha256"], 32).tobytes())]
    )
    columns = {"sha256": digests, "shard": pa.array(np.full(index.num_rows, number, np.int32))}
    for field in schema:
        if field.name not in columns:  # null if an older release wrote the index without the column
            stored = field.name.removeprefix(PREFIX)
            known = stored in index.schema.names
            columns[field.name] = index[stored] if known else pa.nulls(index.num_rows, field.type)
    return pa.table(columns).select(schema.names).cast(schema)


def _may_have_other_colors(records: pa.Table) -> Mask:
    """Return whether the conversion of colours may store other bytes of a record now: bool [N].

    The index does not tell which PNG, AVIF and HEIF files state colours without a profile.
    """
    color = records["source_color"]
    by_statement = pc.is_in(records["source_format"], pa.array(["png", "avif", "heif"]))
    by_profile = pc.and_(
        pc.is_valid(records["icc_profile"]), pc.match_substring_regex(color, "grey|bit|float")
    )
    found = pc.or_(pc.or_(by_statement, by_profile), pc.starts_with(color, "Lab"))
    return mask_of(pc.fill_null(found, True))


def _is_decoded_scaled(records: pa.Table, how: Preparation) -> Mask:
    """Return whether a record is of a JPEG that is now decoded scaled: bool [N]."""
    scaled = np.zeros(records.num_rows, np.bool_)
    if how.resample != "area":
        return scaled
    is_jpeg = pc.equal(records["source_format"], "jpeg")
    is_made = pc.not_equal(records["stored_from"], "source")
    at = np.flatnonzero(mask_of(pc.fill_null(pc.and_(is_jpeg, is_made), False)))
    names = ("source_height", "source_width", "orientation")
    heights, widths, orientations = (
        pc.fill_null(records[name], 1).to_numpy()[at].astype(np.int64) for name in names
    )
    upright = upright_sizes(np.stack([heights, widths], 1), orientations)
    sizes, of_size = np.unique(upright @ (1 << 32, 1), return_inverse=True)
    scales = [
        decoding_scale(geometry(size >> 32, size & 0xFFFFFFFF, how.sizing), (1, 1), 1, channels=1)
        for size in sizes.tolist()
    ]
    scaled[at] = np.array(scales, np.int64)[of_size] != 1
    return scaled


_NOTHING = Reuse(contents=False, uris=False, shards=False)


def reuse_of(manifest: Manifest, config: PrepareConfig, source: str, builds: Mapping[str, str]) -> Reuse:
    """Decide how much of the previous version is still valid.

    Args:
        manifest: manifest of the previous version.
        config: settings of this run.
        source: source of this run, as the manifest would name it.
        builds: library -> version, of this run.
    """
    previous = config_of(manifest)
    new_rules = frozenset(rule for rule in RULES if manifest.codecs.get(rule) != builds.get(rule))
    others, now = (
        {name: each[name] for name in each if name not in RULES} for each in (manifest.codecs, builds)
    )
    if previous is None or others != now:
        return _NOTHING
    if previous.image != config.image or _at_decoding(previous.filter) != _at_decoding(config.filter):
        return _NOTHING
    if _of_masks(previous) != _of_masks(config):
        return _NOTHING
    container = config.shards.container
    cut = (previous.seed, previous.shards.num_shards, previous.shards.shard_bytes)
    return Reuse(
        contents=True,
        uris=without_revision(manifest.source) == source,
        shards=cut == (config.seed, config.shards.num_shards, config.shards.shard_bytes)
        and container in ("auto", manifest.container),
        new_rules=new_rules,
        image=config.image if new_rules else None,
    )


def config_of(manifest: Manifest) -> PrepareConfig | None:
    """Read the settings of a version; None if this release does not understand them."""
    try:
        # Where a version was made changes nothing in it, and its runner's settings may have had other names.
        return PrepareConfig.model_validate({**manifest.config, "runner": {}}, context=STORED)
    except (ValidationError, ShardmillError):
        return None


def _at_decoding(settings: FilterConfig) -> dict[str, object]:
    """Return the rules that need the bytes of an image: all but those of the listing and of planning."""
    return settings.model_dump(exclude={"classes", "drop_empty_classes", "ignore", "quality"})


def _of_masks(config: PrepareConfig) -> object:
    """Return the settings that change stored masks; None without masks."""
    source = config.source
    return source.masks.at_decoding() if source.label_kind == "mask" else None


def retried_reasons(
    manifest: Manifest, config: PrepareConfig, new_rules: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the quarantine reasons that may have passed although the file is unchanged.

    A verdict on an image with a mask may be due to the mask, which may have changed.
    """
    has_masks = config.source.label_kind == "mask"
    verdicts = VERDICT_REASONS if has_masks else reasons_to_retry(manifest.config, config.runner)
    colors = ("unsupported",) if COLORS in new_rules else ()
    return (*PASSING_REASONS, *MASK_REASONS, *verdicts, *colors)
