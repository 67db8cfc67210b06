"""Files that hold many images: archives, and files of rows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shardmill.beam_jobs.config.sources.table import FeatureColumns
from shardmill.infra.settings import Settings

ArchiveLayout = Literal["auto", "folders", "archives", "webdataset"]
RowCompression = Literal["auto", "none", "gzip", "zlib"]


class RowsConfig(Settings):
    """The files of the kinds whose images are rows: parquet, arrays, tfrecord, array_record and tfds."""

    image: str | None = Field(
        None,
        description="Column (parquet), array (arrays) or feature (tfrecord, array_record) with the image; "
        "unset: recognised by its type, name or content",
    )
    mask: str | None = Field(
        None, description="Column with the mask of each image, encoded as images are; kind parquet only"
    )
    label: str | None = Field(
        None,
        description="Column, array or feature with the class: a text or a number; with labels = multi with a "
        "list of them (an array [N, C] of 0 and 1), with labels = targets with numbers; unset: recognised",
    )
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between the labels of an image, if label holds text with several"
    )
    label_columns: tuple[str, ...] = Field(
        (),
        description="Columns or features of 0 and 1, one for each label that an image may have; not arrays",
    )
    target_columns: tuple[str, ...] = Field(
        (), description="Columns or features with the numbers that a model is to predict; not arrays"
    )
    features: FeatureColumns = Field(
        {},
        description="Further features of the records: a list of columns, arrays or features of the files, or "
        "the name of each with its column or with a table of column, dtype, separator and length",
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

    @field_validator("drop_labels", "class_names", "label_columns", "target_columns", mode="before")
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
    name_key: str | None = Field(
        None,
        description="Key of the name of the class in these sidecars, for labels that are numbers; it wins "
        "over .cls and label_key",
    )
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes that the numbers of webdataset mean: the first is that of 0"
    )
    classes_file: str | None = Field(
        None,
        description="File with these names, relative to the source, absolute or a URI: a name a line, "
        "number:name a line, or JSON",
    )
    drop_labels: tuple[str, ...] = Field(
        (), description="Names of classes whose images are left out; of webdataset"
    )
    merge_labels: dict[str, str] = Field(
        {}, description="Name of a class to the name of the class that it becomes; of webdataset"
    )
    split_key: str | None = Field(
        None, description="Key of the split (train, val, test and so on) in the .json sidecars of webdataset"
    )
    group_key: str | None = Field(
        None, description="Key in these sidecars of the images that must stay in one split"
    )
    features: FeatureColumns = Field(
        {},
        description="Further features of the records: keys of the .json sidecars of webdataset, or txt for "
        "the text of .txt sidecars; as in source.rows.features",
    )
    unpacked_bytes: Annotated[int, Field(ge=1, le=1 << 50)] = Field(
        256 << 30,
        description="Most bytes that a compressed tar may unpack to; its members beyond are lost. It is "
        "unpacked once into the spool while the run lasts",
    )

    @field_validator("drop_labels", "class_names", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value
