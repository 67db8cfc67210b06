"""The configuration of ``prepare``: the settings, with their defaults and bounds.

Imports neither Beam nor an image library, since the flows make their forms from it.
"""

from __future__ import annotations

import codecs
import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from infra.format.contract import RESERVED_NAMES
from infra.format.labels import LabelKind
from infra.format.records import Container
from infra.settings import Settings

MIB = 1 << 20

FeatureKind = Literal["auto", "int64", "float", "text", "bytes"]
Layout = Literal["auto", "classes", "splits"]
ArchiveLayout = Literal["auto", "folders", "archives", "webdataset"]
TableFormat = Literal["auto", "csv", "jsonl", "parquet"]
RowCompression = Literal["auto", "none", "gzip", "zlib"]
Resize = Literal["short", "long", "pad", "crop", "none"]
Resample = Literal["area", "lanczos"]
Encoding = Literal["jpeg", "webp", "png", "raw"]
Leakage = Literal["keep", "drop-from-train", "fail"]

_LATER_TABLE_KEYS = frozenset({
    "features", "class_names", "classes_file", "label_separator", "label_columns", "target_columns",
})  # fmt: skip

_FEATURE_NAME = "[A-Za-z][A-Za-z0-9_]*"

# Patterns of files that often lie beside images; case does not matter.
DEFAULT_IGNORE = (
    ".*", "__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini", "LICENSE", "README",
    "*.txt", "*.md", "*.rst", "*.csv", "*.tsv", "*.json", "*.jsonl", "*.xml", "*.yaml", "*.yml", "*.html",
)  # fmt: skip


class FeatureColumn(Settings):
    """A further feature of the records: a column of the table, and how its values are read."""

    column: str | None = Field(None, description="Column of the table; unset: the name of the feature")
    dtype: FeatureKind = Field(
        "auto",
        description="auto: as Parquet and JSON have it, and text in csv; a float has 32 bits. Whole numbers "
        "that are to be floats, and numbers in csv, need it",
    )
    separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between the values of a list, if the column holds text; unset: one value"
    )
    length: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Number of values in each list; unset: any number, or as Parquet fixes it"
    )


class TableConfig(Settings):
    """The table of ``source.kind = "table"``. Its rows name image files and their labels."""

    file: str | None = Field(
        None,
        description="The table: a path relative to the source, an absolute path or a URI. A pattern with * "
        "or ? reads several tables as one",
    )
    format: TableFormat = Field(
        "auto",
        description="csv: text with a header line and any delimiter; jsonl: a JSON object a line; auto: by "
        "the ending .csv, .tsv, .txt, .jsonl, .ndjson, .parquet or .pq",
    )
    path_column: str = Field(
        "path",
        description="Column with the path of the image, relative to the source. The ending may be missing",
    )
    label_column: str = Field(
        "label", description="Column with the name of the class; with labels = multi, with a list of labels"
    )
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between the labels of an image, if label_column holds text with several"
    )
    label_columns: tuple[str, ...] = Field(
        (),
        description="Columns of 0 and 1, one for each label that an image may have; in place of label_column",
    )
    target_columns: tuple[str, ...] = Field(
        (), description="Columns with the numbers that a model is to predict; in place of label_column"
    )
    split_column: str | None = Field(
        None, description="Column with the split (train, val, test and so on); empty where it is to be chosen"
    )
    group_column: str | None = Field(
        None, description="Column with the key of the images that must stay in one split (a patient, a video)"
    )
    prefix: str = Field("", description="Folder within the source that the relative paths begin in")
    drop_labels: tuple[str, ...] = Field(
        (), description="Labels whose rows are left out, as the table writes them"
    )
    merge_labels: dict[str, str] = Field(
        {}, description="Label as the table writes it to the name of the class that it becomes"
    )
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes whose labels are numbers, in the order of the numbers from 0"
    )
    classes_file: str | None = Field(
        None,
        description="File with these names, relative to the source, absolute or a URI: a name a line, "
        "number:name a line, or JSON",
    )
    features: dict[str, FeatureColumn] = Field(
        {},
        description="Further features of the records: a list of columns, or the name of each feature with "
        "its column or with a table of column, dtype, separator and length",
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        None, description="Character between the values of csv; unset: the one that gives the columns above"
    )
    quotes: bool = Field(
        True, description="Values of csv may stand in double quotes; false takes quotes as part of a value"
    )
    encoding: str | None = Field(
        None, description="Encoding of csv and jsonl; unset: as a byte order mark says, or else UTF-8"
    )

    @field_validator("drop_labels", "class_names", "label_columns", "target_columns", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("features", mode="before")
    @classmethod
    def _columns_by_name(cls, value: object) -> object:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list | tuple):
            return {name: {} for name in value}
        if isinstance(value, dict):
            return {name: {"column": one} if isinstance(one, str) else one for name, one in value.items()}
        return value

    @field_validator("features")
    @classmethod
    def _have_names_of_their_own(cls, features: dict[str, FeatureColumn]) -> dict[str, FeatureColumn]:
        for name in features:
            if not re.fullmatch(_FEATURE_NAME, name):
                raise ValueError(
                    f"{name!r} is no name of a feature: write letters, digits and _, as in "
                    f'features = {{ width_cm = "{name}" }}'
                )
            if name in RESERVED_NAMES:
                raise ValueError(
                    f"{name!r} is a name that every record or index has: give the feature another, as in "
                    f'features = {{ my_{name} = "{name}" }}'
                )
        return features

    @field_validator("delimiter")
    @classmethod
    def _splits_lines(cls, delimiter: str | None) -> str | None:
        if delimiter is not None and (delimiter in '"\r\n' or not delimiter.isascii()):
            raise ValueError("must be an ASCII character, and neither a quote nor the end of a line")
        return delimiter

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str | None) -> str | None:
        try:
            if encoding is not None:
                "".encode(codecs.lookup(encoding).name)
        except LookupError as error:
            raise ValueError("no encoding that Python knows, such as cp1252 or utf-16") from error
        return encoding


# Directives by which servers reserve images: see beam_jobs.sources.fetching.opting_out.
DEFAULT_OPT_OUT = ("noai", "noimageai", "noindex", "noimageindex", "none", "tdm-reservation")


class UrlsConfig(Settings):
    """How the images of ``source.kind = "urls"`` are fetched."""

    contact: Annotated[str, Field(pattern=r"^[!-'*-~][ -'*-~]{0,199}$")] | None = Field(
        None,
        description="Where the operators of servers reach you: a page or an e-mail address. Sent with each "
        "request, in the User-Agent",
    )
    connections: Annotated[int, Field(ge=1, le=1024)] = Field(
        64, description="Most requests at a time, over all hosts"
    )
    connections_per_host: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Most requests at a time to one host"
    )
    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        0, description="Least time between the beginnings of two requests to one host (seconds)"
    )
    retries: Annotated[int, Field(ge=0, le=20)] = Field(
        3, description="How often a request is repeated whose fault may pass"
    )
    backoff_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        1, description="Pause before the first repetition (seconds); each further pause is twice as long"
    )
    max_wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300,
        description="Longest pause, also where the server asks for one with Retry-After; if it asks for a "
        "longer one, the address is quarantined (seconds)",
    )
    connect_seconds: Annotated[float, Field(gt=0, le=600)] = Field(
        10, description="Time limit for a connection (seconds)"
    )
    read_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        30, description="Longest time without a byte from the server (seconds)"
    )
    total_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        300, description="Time limit for a whole request (seconds)"
    )
    max_redirects: Annotated[int, Field(ge=0, le=20)] = Field(
        5, description="Most redirects that are followed from an address"
    )
    opt_out: tuple[str, ...] = Field(
        DEFAULT_OPT_OUT,
        description="Directives of X-Robots-Tag by which a server reserves an image, so that it is left out; "
        "tdm-reservation stands for the header TDM-Reservation: 1",
    )
    allow_private_hosts: bool = Field(
        False, description="Ask hosts without a public address too, such as those of your own network"
    )

    @field_validator("opt_out", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def effective(self) -> dict[str, Any]:
        """Return the settings that decide which images are used; the others only pace the requests."""
        return self.model_dump(mode="json", include={"opt_out", "allow_private_hosts", "max_redirects"})


class RowsConfig(Settings):
    """The files of the kinds whose images are rows: parquet, arrays, tfrecord and array_record."""

    image: str | None = Field(
        None,
        description="Column (parquet), array (arrays) or feature (tfrecord, array_record) with the image; "
        "unset: recognised by its type, name or content",
    )
    label: str | None = Field(
        None, description="Column, array or feature with the class: a text or a number; unset: recognised"
    )
    split: str | None = Field(
        None, description="Column, array or feature with the split (train, val, test and so on)"
    )
    group: str | None = Field(
        None,
        description="Column, array or feature with the key of the images that must stay in one split",
    )
    splits_from_names: bool = Field(
        True,
        description="Images without a split get the one that the name of their file or folder gives, as in "
        "train-00000-of-00002.parquet; false: Shardmill chooses it",
    )
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes whose labels are numbers, in the order of the numbers from 0"
    )
    classes_file: str | None = Field(
        None,
        description="File with these names, relative to the source, absolute or a URI: a name a line, "
        "number:name a line, or JSON",
    )
    drop_labels: tuple[str, ...] = Field((), description="Names of classes whose rows are left out")
    merge_labels: dict[str, str] = Field(
        {}, description="Name of a class to the name of the class that it becomes"
    )
    compression: RowCompression = Field(
        "auto", description="Of tfrecord files; auto: recognised by the content"
    )

    @field_validator("drop_labels", "class_names", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class ArchiveConfig(Settings):
    """The archives of ``source.kind = "archive"``: tar, also compressed, and zip."""

    layout: ArchiveLayout = Field(
        "auto",
        description="folders: class folders in the archives, with or without split folders above them; "
        "archives: an archive a class; webdataset: a sidecar of the same name gives the label; auto: "
        "recognised",
    )
    prefix: str | None = Field(
        None,
        description="Folder in the archives that the class folders lie in; unset: a single folder around all "
        "of them is skipped",
    )
    splits_by_name: bool = Field(
        True, description="Take the split from the archives' names (train-0001.tar) if all of them have one"
    )
    label_key: str = Field("label", description="Key of the label in the .json sidecars of webdataset")
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes that the numbers of webdataset mean: the first is that of 0"
    )
    unpacked_bytes: Annotated[int, Field(ge=1)] = Field(
        256 << 30,
        description="Most bytes that a compressed tar may unpack to; its members beyond are lost. It is "
        "unpacked once into the spool while the run lasts",
    )


class AnnotationFile(Settings):
    """Annotation files whose images lie in one folder."""

    file: Annotated[str, Field(min_length=1)] = Field(
        description="A path relative to the source, an absolute path or a URI; with * or ? several files"
    )
    images: str = Field("", description="Folder within the source that the names of images begin in")
    split: Literal["train", "validation", "test"] | None = Field(
        None, description="Split of these images; unset: it is chosen"
    )


class ObjectsConfig(Settings):
    """The objects in the images of ``source.kind = "coco"`` and ``"voc"``."""

    annotations: tuple[AnnotationFile, ...] = Field(
        (), description="The annotation files: a path, or a list of tables with file, images and split"
    )
    coordinates: Literal["stored", "upright"] = Field(
        "stored",
        description="Image that boxes are of, where an EXIF orientation turns the file and its size does not "
        "tell: stored: as the file has its pixels; upright: as viewers show it",
    )
    drop_labels: tuple[str, ...] = Field((), description="Classes whose objects are left out")
    merge_labels: dict[str, str] = Field(
        {}, description="Class as the annotation names it to the class that it becomes"
    )

    @field_validator("annotations", mode="before")
    @classmethod
    def _path_or_tables(cls, value: object) -> object:
        if isinstance(value, str | dict):
            value = (value,)
        if isinstance(value, list | tuple):
            return tuple({"file": one} if isinstance(one, str) else one for one in value)
        return value

    @field_validator("drop_labels", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


_OF_OBJECTS = ("coco", "voc")


class SourceConfig(Settings):
    """The source of the images."""

    kind: str = Field(
        "image_folder",
        description="Kind of source (shardmill sources lists them); auto to have it recognised; or the "
        "module of your own kind, such as my_package.my_kind",
    )
    layout: Layout = Field(
        "auto",
        description="Layout of the folder: root/class/* (classes), root/train/class/* and so on (splits), "
        "or recognised by the names of its top folders (auto)",
    )
    labels: LabelKind | None = Field(
        None,
        description="Labels of the images. class: one class each; multi: any number of classes; targets: "
        "numbers; none: the images have no labels. Unset: as the columns of the table say, else class",
    )
    files: str | None = Field(
        None,
        description="The files that are the source: a path relative to its folder, or a pattern with * or ?; "
        "unset: all of them",
    )
    table: TableConfig = Field(TableConfig(), description="The table of the kinds table and urls")
    urls: UrlsConfig = Field(UrlsConfig(), description="How the images of kind urls are fetched")
    rows: RowsConfig = Field(
        RowsConfig(), description="The files of kinds whose images are rows, such as parquet"
    )
    archive: ArchiveConfig = Field(ArchiveConfig(), description="The archives of kind archive")
    objects: ObjectsConfig = Field(ObjectsConfig(), description="The objects of the kinds coco and voc")
    options: dict[str, Any] = Field({}, description="Options of your own kind, as its module names them")

    @property
    def label_kind(self) -> LabelKind:
        """The kind of labels that the images get."""
        if self.labels is not None:
            return self.labels
        if self.kind in _OF_OBJECTS:
            return "multi"
        if self.table.target_columns:
            return "targets"
        return "multi" if self.table.label_columns or self.table.label_separator is not None else "class"

    @model_validator(mode="after")
    def _labels_and_columns_agree(self) -> Self:
        kind, table = self.label_kind, self.table
        if table.target_columns and kind != "targets":
            raise ValueError(f"labels = {kind!r} and target_columns: leave one of them out")
        if (table.label_columns or table.label_separator is not None) and kind != "multi":
            raise ValueError(f"labels = {kind!r} and label_columns or label_separator: leave one of them out")
        if kind == "targets" and not table.target_columns:
            raise ValueError("labels = 'targets' needs source.table.target_columns: the columns with numbers")
        if kind == "multi" and self.kind in ("image_folder", "archive"):
            raise ValueError("a folder gives an image one class: labels = 'multi' needs a table of labels")
        if kind in ("targets", "none") and (table.drop_labels or table.merge_labels):
            raise ValueError(f"labels = {kind!r} has no labels that drop_labels or merge_labels could name")
        if kind != "class" and (table.class_names or table.classes_file):
            raise ValueError(
                f"labels = {kind!r}, and class_names or classes_file name the one class of an image"
            )
        return self

    @model_validator(mode="after")
    def _table_and_kind_agree(self) -> Self:
        if self.kind == "auto":  # checked again when the kind is known
            return self
        reads_table = self.kind in ("table", "urls")
        if reads_table and not self.table.file:
            raise ValueError(
                f"kind {self.kind} needs the path of the table: --set source.table.file=labels.csv"
            )
        if not reads_table and self.table != TableConfig():
            raise ValueError(f"kind {self.kind} reads no table: say --set source.kind=table")
        if self.kind != "urls" and self.urls != UrlsConfig():
            raise ValueError(f"kind {self.kind} fetches nothing: say --set source.kind=urls")
        if (
            self.kind in ("image_folder", "table", "urls", "archive", *_OF_OBJECTS)
            and self.rows != RowsConfig()
        ):
            raise ValueError(f"kind {self.kind} reads no rows of files: say --set source.kind=parquet")
        if self.kind != "archive" and self.archive != ArchiveConfig():
            raise ValueError(f"kind {self.kind} reads no archives: say --set source.kind=archive")
        if self.kind in _OF_OBJECTS and not self.objects.annotations:
            raise ValueError(
                f"kind {self.kind} needs annotation files: --set source.objects.annotations=instances.json"
            )
        if self.kind in _OF_OBJECTS and self.label_kind != "multi":
            raise ValueError(f"kind {self.kind} gives images several labels: leave source.labels out")
        if self.kind not in _OF_OBJECTS and self.objects != ObjectsConfig():
            raise ValueError(f"kind {self.kind} has no objects: say --set source.kind=coco or voc")
        return self


class ImageConfig(Settings):
    """The stored form of an image."""

    resize: Resize = Field(
        "short",
        description="short or long: scale that side to size; pad or crop: exactly height × width, padded "
        "with the background or cropped around the centre; none: keep the size",
    )
    size: Annotated[int, Field(ge=8, le=8192)] = Field(
        256, description="Side of the stored image (pixels): the shorter for short, the longer for long"
    )
    height: Annotated[int, Field(ge=8, le=8192)] | None = Field(
        None, description="Height for pad and crop (pixels); unset for size"
    )
    width: Annotated[int, Field(ge=8, le=8192)] | None = Field(
        None, description="Width for pad and crop (pixels); unset for size"
    )
    upscale: bool = Field(False, description="Enlarge smaller images too")
    resample: Resample = Field(
        "area", description="area: averaging, the fastest; lanczos: sharper. Neither aliases"
    )
    encoding: Encoding = Field("jpeg", description="Stored form; raw: uint8 [height, width, channels]")
    quality: Annotated[int, Field(ge=1, le=100)] = Field(90, description="Quality of stored JPEG and WebP")
    passthrough: bool = Field(
        False,
        description="Copy the source bytes, without metadata, when they already have the stored encoding, "
        "size, orientation, colour space (sRGB) and channels",
    )
    channels: Literal[1, 3] = Field(3, description="1 stores grey images, 3 RGB")
    background: Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")] = Field(
        "#ffffff", description="Colour behind transparent pixels and around padded images: #rrggbb"
    )
    max_pixels: Annotated[int, Field(ge=1)] = Field(
        178_956_970, description="Most pixels of a source image; images with more are quarantined undecoded"
    )
    max_bytes: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        256 * MIB,
        description="Largest source file that is read (bytes); larger files are quarantined as too_large. "
        "Does not limit the stored image",
    )
    allow_truncated: bool = Field(
        False, description="Keep images that end early, flagged as salvaged, instead of quarantining them"
    )


class FilterConfig(Settings):
    """Inputs to leave out. Each keeps a row in the inputs, with the reason."""

    min_width: Annotated[int, Field(ge=0)] = Field(
        0, description="Leave out narrower images (upright pixels)"
    )
    min_height: Annotated[int, Field(ge=0)] = Field(0, description="Leave out lower images (upright pixels)")
    max_aspect: Annotated[float, Field(ge=1)] | None = Field(
        None, description="Leave out images whose longer side is more than this many times the shorter"
    )
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None,
        description="Names of the classes to keep; images of other classes are left out. Unset keeps all",
    )
    ignore: tuple[str, ...] = Field(
        DEFAULT_IGNORE,
        description="Shell patterns of files and folders to ignore: of a name, or with a '/' of a path",
    )

    @field_validator("classes", "ignore", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class SplitsConfig(Settings):
    """Fractions of each class, unless the source gives the splits itself."""

    train: Annotated[float, Field(ge=0, le=1)] = Field(0.8, description="Fraction of each class for training")
    validation: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="Fraction of each class for choosing between models"
    )
    test: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="Fraction of each class for the final measurement"
    )

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.train + self.validation + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"the fractions sum to {total:g}, not to 1")
        return self

    def fractions(self) -> tuple[float, float, float]:
        """Return the fractions in the order of ``infra.format.contract.SPLITS``."""
        return self.train, self.validation, self.test


class GroupsConfig(Settings):
    """Groups of images that must stay in one split."""

    pattern: str | None = Field(
        None,
        description="Regular expression searched in each URI; the text that its first parenthesis matches is "
        "the group (a patient, a video)",
    )
    near_duplicates: bool = Field(True, description="Group images that look the same")
    max_difference: Annotated[float, Field(ge=0, le=0.12)] = Field(
        0.035,
        description="How much the structures of images that look the same may differ: 0 for the same "
        "structure, 1 for two that have nothing in common. 0 groups only images with the very same look",
    )
    symmetries: bool = Field(True, description="Find mirrored and turned copies too")
    crops: bool = Field(True, description="Find copies too that were cut by up to 5 % at each side")
    max_distance: Annotated[int, Field(ge=0, le=16)] = Field(
        6,
        description="Bits of 64 in which the hashes of two images may differ, for their structures to be "
        "compared at all",
    )
    leakage: Leakage = Field(
        "keep",
        description="Action when folders or an earlier version put members of a group into several splits. "
        "keep: keep all of them and report the leak; drop-from-train: leave out its records in train; fail: "
        "publish nothing",
    )

    @field_validator("pattern")
    @classmethod
    def _has_a_parenthesis(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if not groups:
            raise ValueError("has no parenthesis: put one around the part that names the group")
        return pattern


class ShardsConfig(Settings):
    """The files that hold the records."""

    num_shards: Annotated[int, Field(ge=1, le=99_999)] | None = Field(
        None,
        description="Number of shards of each split, at most one a record; unset: as shard_bytes gives. A "
        "later version writes its share of the number for the records that it adds",
    )
    shard_bytes: Annotated[int, Field(ge=1)] = Field(
        128 * MIB, description="Target size of a shard (bytes); unused if num_shards is given"
    )
    container: Literal["auto", Container] = Field(
        "auto",
        description="gzip: one member a record; none: plain TFRecord; auto: gzip if it saves enough on a "
        "sample",
    )


class RunnerConfig(Settings):
    """Execution of the Beam jobs. No setting of this group changes the written bytes."""

    name: str = Field(
        "embedded",
        description="Beam runner: embedded (this machine) or portable (any job server of Beam's)",
    )
    options: tuple[str, ...] = Field(
        (), description="Beam's own options for the portable runner, each as --name=value"
    )
    processes: Annotated[int, Field(ge=0, le=1024)] = Field(
        0,
        description="Processes that work on images, in each Beam worker; 0 for as many as there are "
        "processor cores (embedded), or one (portable)",
    )
    image_seconds: Annotated[float, Field(gt=0)] = Field(
        60, description="An image that takes longer is quarantined (seconds)"
    )
    image_memory_bytes: Annotated[int, Field(ge=64 * MIB)] = Field(
        4096 * MIB, description="An image that needs more memory than this is quarantined (bytes)"
    )
    block_images: Annotated[int, Field(ge=4, le=65_536)] = Field(
        128, description="Mean number of images in a block, the unit of work and of resuming"
    )


class PrepareConfig(Settings):
    """Everything that ``prepare`` lets a user choose."""

    source: SourceConfig = Field(SourceConfig(), description="The source of the images")
    image: ImageConfig = Field(ImageConfig(), description="The stored form of an image")
    filter: FilterConfig = Field(FilterConfig(), description="Inputs to leave out")
    splits: SplitsConfig = Field(SplitsConfig(), description="Fractions of train, validation and test")
    groups: GroupsConfig = Field(GroupsConfig(), description="Groups of images that must stay in one split")
    shards: ShardsConfig = Field(ShardsConfig(), description="The files that hold the records")
    runner: RunnerConfig = Field(RunnerConfig(), description="Execution of the Beam jobs")
    failure_budget: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01,
        description="Largest allowed fraction of quarantined inputs (0.01 is 1 %). If more are quarantined, "
        "the run fails and publishes nothing",
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        0, description="Seed of splits, shards and their order"
    )

    @model_validator(mode="after")
    def _filters_classes_of_one(self) -> Self:
        if self.filter.classes is not None and self.source.label_kind != "class":
            raise ValueError(
                f"filter.classes keeps the images of some classes, and labels = {self.source.label_kind!r}: "
                "leave it out; drop_labels leaves out the rows that have a label"
            )
        return self

    def effective(self) -> dict[str, Any]:
        """Return the settings that change the written bytes: all but the runner and the failure budget."""
        settings = self.model_dump(mode="json", exclude={"runner", "failure_budget"})
        source = settings["source"]
        if self.source.kind not in ("table", "urls"):
            del source["table"]
        # Settings that say nothing are left out, so that digests stay as they were before there were any.
        for key in _LATER_TABLE_KEYS & source.get("table", {}).keys():
            if not source["table"][key]:
                del source["table"][key]
        if self.source.labels in (None, "class"):
            del source["labels"]
        del source["urls"]
        if self.source.kind == "urls":
            source["urls"] = self.source.urls.effective()
        if self.source.kind not in _OF_OBJECTS:
            del source["objects"]
        if not self.source.options:
            del source["options"]  # likewise
        if self.source.rows == RowsConfig():
            del source["rows"]  # likewise
        if self.source.kind != "archive":
            del source["archive"]
        if not self.source.files:
            del source["files"]
        return settings
