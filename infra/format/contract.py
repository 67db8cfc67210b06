"""The dataset on disk: columns of its tables, and the manifest that publishes a version.

A change that an older reader would misread needs a new FORMAT_VERSION.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, Self

import pyarrow as pa
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from shardmill.infra.errors import AccountingError
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import (
    LABELS,
    MASK,
    MASK_MEANING,
    NO_CLASS,
    TARGETS,
    LabelKind,
    MaskFormat,
    target_names,
)
from shardmill.infra.format.records import Container
from shardmill.infra.preparation import SampleKind, SampleType, StoredEncoding
from shardmill.infra.settings import Settings
from shardmill.infra.storage.locations import public_values

# 3: records without the feature ``label``. An older reader takes it for damage, or trains on nothing.
FORMAT_VERSION: Final = 2
FORMAT_VERSION_WITHOUT_CLASS: Final = 3
FORMAT_VERSIONS: Final = (FORMAT_VERSION, FORMAT_VERSION_WITHOUT_CLASS)

# The column ``look``: one or two views of an image, the whole and what is inside its border if it has one. A
# view is int8 [14 rows of vertical frequencies, 14 horizontal ones] (shardmill.infra.codecs.measures).
LOOK_SIDE: Final = 14
LOOK_BYTES: Final = LOOK_SIDE**2  # length of a look of one view
ROOT_UNIT: Final = 4  # a value is so many times the root of a coefficient (grey levels)

SPLITS = ("train", "validation", "test")

RECORD, DUPLICATE, FILTERED, QUARANTINED = "record", "duplicate", "filtered", "quarantined"
OUTCOMES = (RECORD, DUPLICATE, FILTERED, QUARANTINED)

FEATURES: dict[str, str] = {
    "id": "bytes: first 16 hexadecimal digits of the SHA-256 of the source bytes",
    "image": "bytes: the encoded image, in the manifest's image_encoding",
    "label": "int64: index into the manifest's classes",
    "label_name": "bytes: name of the class",
    "height": "int64: of the stored image (pixels)",
    "width": "int64: of the stored image (pixels)",
    "channels": "int64: 1 (grey) or 3 (RGB)",
}

# Raise this with every change that gives some file other pixels or another verdict, or records other columns.
# Then work that was finished under the old code is not mixed with new work.
REVISION: Final = 6

_Columns = dict[str, tuple[pa.DataType, str]]  # name -> type and meaning; docs/reference_tables.py lists them

_PLACE = "where the record lies: the gzip member, or the framed record in container `none`"
_SOURCE_IMAGE = "of the source image (pixels)"
_STORED_IMAGE = "of the stored image (pixels)"
_OF_CHANNELS = "of each channel of the stored image, in units of its samples, as it was before it was encoded"
_LOOK = (
    "coarse structure of the picture, by which [near-duplicates](honest-splits.md#groups) are found: 14×14 "
    "values of int8, rows of vertical frequencies of its cosine transform, ±4·√ of each coefficient in grey "
    "levels, the mean as 0; then the same of the picture without its border, if it has one. Null without "
    "structure, and in earlier releases"
)

_OF_LUMA = (
    "5th and 99th percentile of grey levels (0 to 255): of luma (BT.601) of the stored picture without "
    "canvas and border, halved (2×2 pixels averaged) until its shorter side is below 128. Null unless "
    "samples are uint8 of 1 or 3 channels; what follows is then of the channels' mean, each "
    "stretched from its darkest to its brightest half percent"
)
_SHARPNESS = (
    "detail, whatever the contrast: E₁ ÷ (E₂ + ½), at most 16. E₁ is the mean squared difference of "
    "neighbours of luma, halved until its shorter side is below 256, E₂ that of the next half. 0.25: "
    "blurred; 0.5: edges; 4: noise. Null without any detail, or below 32 pixels"
)

# What is known of a stored image and its source; beam_jobs/encode/facts.py has the values.
_IMAGE: Final[_Columns] = {
    "stored_bytes": (pa.int64(), "length of the stored image: its `image` feature"),
    "height": (pa.int32(), _STORED_IMAGE),
    "width": (pa.int32(), _STORED_IMAGE),
    "stored_from": (
        pa.string(),
        "`planes`: a JPEG scaled in YCbCr; `pixels`: by way of samples; `source`: the source's picture",
    ),
    "source_format": (pa.string(), "of the source image: `jpeg` and so on"),
    "source_color": (
        pa.string(),
        "`YCbCr 4:2:0`, `RGB`, `grey 16-bit` and others; behind `;` what was left out",
    ),
    "source_height": (pa.int32(), _SOURCE_IMAGE),
    "source_width": (pa.int32(), _SOURCE_IMAGE),
    "orientation": (pa.int8(), "the EXIF orientation (1 to 8) that was applied"),
    "icc_profile": (
        pa.string(),
        "colours that were converted to sRGB: ICC profile, `Display P3 (cICP)`; or null",
    ),
    "had_alpha": (pa.bool_(), "transparency was put on the background"),
    "salvaged": (pa.bool_(), "the file ends early"),
    "perceptual_hash": (
        pa.uint64(),
        "64 bits that scaling and compression hardly change; null for blank pictures",
    ),
    "look": (pa.binary(), _LOOK),
    "pixel_mean": (pa.list_(pa.float32()), _OF_CHANNELS),
    "pixel_std": (pa.list_(pa.float32()), _OF_CHANNELS),
    "luma_p5": (pa.uint8(), _OF_LUMA),
    "luma_p99": (pa.uint8(), _OF_LUMA),
    "luma_entropy": (
        pa.float32(),
        "information of these grey levels (bits a pixel, 0 to 8): −Σ p·log₂ p of the share p of each",
    ),
    "luma_sharpness": (pa.float32(), _SHARPNESS),
    "border_share": (pa.float32(), "share of the area in bars of one shade at the sides, of this luma"),
}

# planes: resized in YCbCr; pixels: resized in RGB or grey; source: the source's bytes without its metadata.
STORED_FROM = ("planes", "pixels", "source")

# All columns of an index. ``PlannedRecords`` (beam_jobs/plan/rows.py) has the values of those of a record.
INDEX_COLUMNS: Final[_Columns] = {
    "id": (pa.string(), "as in the record"),
    "offset_bytes": (pa.int64(), _PLACE),
    "length_bytes": (pa.int64(), _PLACE),
    "label": (pa.int32(), "as in the record"),
    "source_uri": (pa.string(), "the file it came from, relative to the source"),
    "sha256": (pa.string(), "of the source file"),
    "source_bytes": (pa.int64(), "length of the source file"),
    "group": (pa.string(), "the key of images that stay in one split, or null"),
    **_IMAGE,
}

IMAGE_COLUMNS = tuple(pa.field(name, kind) for name, (kind, _) in _IMAGE.items())
INDEX_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in INDEX_COLUMNS.items()])

# Names that no further feature may have: keys of records, columns of indexes, and names of a batch.
RESERVED_NAMES: Final = frozenset({
    *FEATURES, *INDEX_SCHEMA.names, "split", "shard", "images", "labels", "label_names", "targets", "weights",
    "ordinals", "positions", "epoch", "step", "sizes", "masks",
})  # fmt: skip

INPUTS_SCHEMA = pa.schema(
    [
        ("uri", pa.string()),  # relative to the source
        ("size_bytes", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("label", pa.string()),
        ("group", pa.string()),
        ("split", pa.string()),  # of the record; for a duplicate, of the record it repeats
        ("sha256", pa.string()),
        ("outcome", pa.string()),
        ("record_id", pa.string()),  # for a duplicate: of the record that was kept
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("message", pa.string()),
    ]
)

# One row for each member of each group of near-duplicates, sorted by group and id.
NEAR_DUPLICATES_SCHEMA = pa.schema(
    [
        ("group", pa.string()),  # the smallest record id of the group
        ("record_id", pa.string()),
        ("uri", pa.string()),
        ("label", pa.string()),
        ("split", pa.string()),  # null if it was dropped as a leak
        ("perceptual_hash", pa.uint64()),
        # Thousandths by which the nearest other member differs; bits in versions of releases before looks.
        ("distance", pa.int8()),
    ]
)


class Stored(Settings):
    """Base of the values that a manifest is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Shard(Stored):
    """One shard and its index, by paths relative to the dataset's folder."""

    path: str
    index_path: str
    split: str
    num_examples: int = Field(ge=1)
    num_bytes: int
    payload_bytes: int = Field(description="encoded images alone")
    sha256: str
    index_bytes: int
    index_sha256: str
    class_counts: dict[str, int]


class TableFile(Stored):
    """One Parquet file of a version, by its path relative to the dataset's folder."""

    path: str
    num_rows: int
    num_bytes: int
    sha256: str


class Accounting(Stored):
    """Counts of the outcomes of all inputs. The object cannot be made unless they add up."""

    num_inputs: int = Field(ge=0)
    num_records: int = Field(ge=0)
    num_duplicates: int = Field(ge=0)
    num_filtered: int = Field(ge=0)
    num_quarantined: int = Field(ge=0)

    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome -> number of the inputs that have it."""
        counts = self.num_records, self.num_duplicates, self.num_filtered, self.num_quarantined
        return dict(zip(OUTCOMES, counts, strict=True))

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        outcomes = sum(self.outcomes.values())
        if outcomes != self.num_inputs:
            raise AccountingError(
                f"{self.num_inputs} inputs, but {outcomes} outcomes: {self.num_records} records, "
                f"{self.num_duplicates} duplicates, {self.num_filtered} filtered, "
                f"{self.num_quarantined} quarantined",
                "nothing was published; this is a defect of Shardmill, please report it",
            )
        return self


class SplitSummary(Stored):
    """One split of a version, over all its shards."""

    num_examples: int
    num_shards: int
    num_bytes: int
    class_counts: dict[str, int]


class LabelConflict(Stored):
    """The same bytes under several labels. The record has the label of the smallest URI."""

    sha256: str
    uris: list[str]
    labels: list[str]


class ChannelStatistics(Stored):
    """Mean and deviation of the samples of a split's stored images, one value a channel, over all pixels."""

    num_pixels: int
    mean: list[float]
    std: list[float]


class SplitStatistics(Stored):
    """Statistics of the images of a split."""

    pixels: ChannelStatistics | None = None
    height: tuple[int, float, int] | None = Field(default=None, description="least, median, largest (pixels)")
    width: tuple[int, float, int] | None = Field(default=None, description="least, median, largest (pixels)")
    aspect: tuple[float, float, float] | None = Field(default=None, description="width ÷ height")
    stored_bytes: tuple[int, float, int] | None = Field(default=None, description="of an encoded image")


class QualityLimits(Stored):
    """Limits of a measure beyond which a picture has a quality flag (``shardmill.infra.format.quality``)."""

    measure: str
    below: float | None = Field(default=None, description="a picture with a lower value has the flag")
    above: float | None = Field(default=None, description="a picture with a higher value has the flag")
    num_records: int = Field(default=0, ge=0, description="that have it")

    @property
    def in_words(self) -> str:
        """The limits as conditions of a query."""
        ends = (("<", self.below), (">", self.above))
        return " or ".join(f"{self.measure} {sign} {end:g}" for sign, end in ends if end is not None)


class LabelEditsSummary(Stored):
    """What the label edits of ``source.label_edits`` and the decisions of reviews changed.

    Attributes:
        sha256: SHA-256 of all decisions in them.
    """

    sha256: str
    num_labels: int = Field(ge=0, description="images whose label they give")
    num_left_out: int = Field(ge=0)


class Leaks(Stored):
    """Numbers of groups whose members are in several splits, and of records dropped for it."""

    near_duplicate_groups: int = 0
    key_groups: int = 0
    dropped_from_train: int = 0


# Keys that a manifest has only where they say something.
_UNUSED: Final[dict[str, Any]] = {
    "extra_features": [], "label_kind": "class", "mask": None, "label_edits": None, "dtype": None,
    "channels": None, "quality": {},
}  # fmt: skip


class Manifest(Stored):
    """Everything that a version is. Its creation publishes the version.

    ``shardmill.infra.format.layout`` says how it is stored.
    """

    format_version: Literal[2, 3] = FORMAT_VERSION
    dataset: str
    version: int = Field(ge=1)
    parent: int | None = None
    created_at: str = Field(description="UTC, ISO 8601")
    plan_digest: str
    run_digest: str
    source: str
    source_digest: str = Field(description="of the source's listing and all that affects the result")
    classes: list[str]
    container: Container
    container_reason: str = ""
    image_encoding: StoredEncoding = "jpeg"
    dtype: SampleType | None = Field(default=None, description="of the samples; null for common images")
    channels: int | None = Field(default=None, ge=1, description="of every image; null for common images")
    restores: int | None = Field(default=None, description="the version that a rollback brought back")
    config: dict[str, Any]
    codecs: dict[str, str]
    features: dict[str, str] = FEATURES
    label_kind: LabelKind = "class"
    mask: MaskFormat | None = Field(default=None, description="stored form of masks; null without masks")
    extra_features: list[Feature] = Field(default_factory=list, description="further features of the records")
    shards: list[Shard]
    inputs: list[TableFile]
    near_duplicates: TableFile | None = Field(default=None, description="NEAR_DUPLICATES_SCHEMA")
    accounting: Accounting
    splits: dict[str, SplitSummary]
    quarantine: dict[str, int] = Field(default_factory=dict, description="reason -> number of inputs")
    label_edits: LabelEditsSummary | None = Field(default=None, description="null without label edits")
    label_conflicts: list[LabelConflict] = Field(default_factory=list)
    cross_split_duplicates: int = 0
    leaks: Leaks = Leaks()
    statistics: dict[str, SplitStatistics] = Field(default_factory=dict, description="split -> its images")
    quality: dict[str, QualityLimits] = Field(default_factory=dict, description="quality flag -> its limits")
    report: str | None = Field(default=None, description="path of report.html relative to the dataset")
    report_sha256: str | None = None

    @field_validator("source", "config")
    @classmethod
    def _without_credentials(cls, value: Any) -> Any:
        return public_values(value)

    @model_validator(mode="after")
    def _format_and_labels_agree(self) -> Self:
        if self.format_version != format_version_of(self.label_kind):
            raise ValueError(f"labels of kind {self.label_kind!r} in format version {self.format_version}")
        if (self.mask is not None) != (self.label_kind == "mask"):
            raise ValueError("the key mask is given exactly for labels of kind 'mask'")
        return self

    @model_validator(mode="after")
    def _shards_hold_the_records(self) -> Self:
        stored = sum(shard.num_examples for shard in self.shards)
        if stored != self.accounting.num_records:
            raise AccountingError(
                f"the shards of {self.dataset}@{self.version} hold {stored} records, "
                f"the inputs account for {self.accounting.num_records}"
            )
        return self

    @model_validator(mode="after")
    def _names_uncommon_samples(self) -> Self:
        kind = SampleKind(self.dtype or "uint8", self.channels or 3)
        if (self.dtype is None) != (self.channels is None) or (self.dtype is not None and kind.is_common):
            raise ValueError(
                "dtype and channels are given exactly for images other than uint8 of 1 or 3 channels"
            )
        if self.dtype is not None and kind.stored_as("jpeg") != self.image_encoding:
            raise ValueError(f"{self.dtype} of {self.channels} channels stored as {self.image_encoding!r}")
        return self

    @property
    def samples(self) -> SampleKind:
        """The dtype and the number of channels of every image."""
        if self.dtype is not None and self.channels is not None:
            return SampleKind(self.dtype, self.channels)
        channels = self.config.get("image", {}).get("channels", 3)
        if channels == "keep":
            measured = [len(split.pixels.mean) for split in self.statistics.values() if split.pixels]
            channels = measured[0] if measured else 3
        return SampleKind("uint8", channels)

    @property
    def empty_splits(self) -> list[str]:
        """The splits that the settings ask for and that have no example."""
        wanted = self.config.get("splits", {})
        return [
            name
            for name in SPLITS
            if wanted.get(name) and (name not in self.splits or not self.splits[name].num_examples)
        ]

    @model_serializer(mode="wrap")
    def _without_unused_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out keys that say nothing, so that older releases read the manifest."""
        document: dict[str, Any] = serialize(self)
        for key, unused in _UNUSED.items():
            if document.get(key) == unused:
                del document[key]
        return document

    @property
    def label_names(self) -> list[str]:
        """The names of the classes, or of the numbers where labels are numbers."""
        if self.label_kind != "targets":
            return self.classes
        return [
            name
            for feature in self.extra_features
            if feature.name == TARGETS
            for name in target_names(feature)
        ]

    def files(self) -> dict[str, int | None]:
        """Path -> size (bytes; None if the manifest has none) of every file of the version."""
        found: dict[str, int | None] = {}
        for shard in self.shards:
            found |= {shard.path: shard.num_bytes, shard.index_path: shard.index_bytes}
        tables = [*self.inputs, *([self.near_duplicates] if self.near_duplicates else [])]
        found |= {table.path: table.num_bytes for table in tables}
        return found | ({self.report: None} if self.report else {})


def format_version_of(kind: LabelKind) -> Literal[2, 3]:
    """Return the format version of a dataset with labels of a kind."""
    return FORMAT_VERSION if kind == "class" else FORMAT_VERSION_WITHOUT_CLASS


def described_features(kind: LabelKind, channels: int = 3) -> dict[str, str]:
    """Return what the manifest says of the features that every record has: name -> type and meaning.

    Args:
        kind: of the labels.
        channels: of the images.
    """
    found = dict(FEATURES)
    if channels not in (1, 3):
        found["channels"] = "int64: samples of a pixel"
    if kind == "class":
        return found
    found = {name: text for name, text in found.items() if name not in ("label", "label_name")}
    return found | {MASK: MASK_MEANING} if kind == "mask" else found


def class_counts_of(index: pa.Table | pa.RecordBatch, classes: Sequence[str]) -> dict[str, int]:
    """Return class -> number of records that have it; empty if the labels are no classes.

    Args:
        index: rows of an index.
        classes: names by label.
    """
    labels = index["label"]
    if LABELS in index.schema.names:
        chunks = index[LABELS].chunks if isinstance(index, pa.Table) else [index[LABELS]]
        labels = pa.chunked_array([chunk.flatten() for chunk in chunks], pa.int64())
    counts = {row["values"]: row["counts"] for row in labels.value_counts().to_pylist()}
    return {classes[label]: counts[label] for label in sorted(counts) if label != NO_CLASS}


def summarise_splits(shards: Iterable[Shard]) -> dict[str, SplitSummary]:
    """Split -> totals over its shards, in the order train, validation, test, others."""
    by_split: dict[str, list[Shard]] = {}
    for shard in shards:
        by_split.setdefault(shard.split, []).append(shard)
    order = [name for name in SPLITS if name in by_split] + sorted(set(by_split) - set(SPLITS))
    summaries = {}
    for name in order:
        counts: Counter[str] = Counter()
        for shard in by_split[name]:
            counts.update(shard.class_counts)
        summaries[name] = SplitSummary(
            num_examples=sum(shard.num_examples for shard in by_split[name]),
            num_shards=len(by_split[name]),
            num_bytes=sum(shard.num_bytes for shard in by_split[name]),
            class_counts=dict(sorted(counts.items())),
        )
    return summaries
