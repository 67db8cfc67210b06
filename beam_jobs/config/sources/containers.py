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
        description=(
            "Column (parquet), array (arrays) or feature (tfrecord, array_record) with the image; "
            "unset: recognised"
        ),
    )
    mask: str | None = Field(None, description="Column with each image's encoded mask; parquet only")
    label: str | None = Field(
        None,
        description=(
            "Column, array or feature with the class, with a list (labels = multi; an array [N, C] of"
            " 0 and 1) or with numbers (targets); unset: recognised"
        ),
    )
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="Text between several labels in label"
    )
    label_columns: tuple[str, ...] = Field(
        (),
        description="Columns or features of 0 and 1, one a label; not arrays",
    )
    target_columns: tuple[str, ...] = Field(
        (), description="Columns or features with the numbers to predict; not arrays"
    )
    features: FeatureColumns = Field(
        {},
        description=(
            "Further features of the records: columns, arrays or features, or each name with its "
            "column or a table of column, dtype, separator, length"
        ),
    )
    split: str | None = Field(None, description="Column, array or feature with the split (train, val, test)")
    group: str | None = Field(
        None,
        description="Column, array or feature with the key of images that must stay in one split",
    )
    splits_from_names: bool = Field(
        True,
        description=(
            "Take splits from names of files or folders, as train-00000-of-00002.parquet; false: "
            "Shardmill chooses"
        ),
    )
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes whose labels are numbers, from 0"
    )
    classes_file: str | None = Field(
        None,
        description="File with these names: a name a line, number:name a line, or JSON",
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
        description=(
            "folders: class folders, with or without split folders above; archives: an archive a "
            "class; webdataset: sidecars give labels; auto: recognised"
        ),
    )
    prefix: str | None = Field(
        None,
        description=(
            "Folder of the class folders in the archives; unset: a single folder around all is skipped"
        ),
    )
    splits_by_name: bool = Field(
        True, description="Take splits from the archives' names (train-0001.tar) if all have one"
    )
    label_key: str = Field("label", description="Key of the label in the .json sidecars of webdataset")
    name_key: str | None = Field(
        None,
        description="Key of the class's name in these sidecars; wins over .cls and label_key",
    )
    class_names: tuple[str, ...] = Field(
        (), description="Names of the classes that the numbers of webdataset mean: the first is that of 0"
    )
    classes_file: str | None = Field(
        None,
        description="File with these names: a name a line, number:name a line, or JSON",
    )
    drop_labels: tuple[str, ...] = Field(
        (), description="Names of classes whose images are left out; of webdataset"
    )
    merge_labels: dict[str, str] = Field(
        {}, description="Name of a class to the name of the class that it becomes; of webdataset"
    )
    split_key: str | None = Field(None, description="Key of the split in the .json sidecars of webdataset")
    group_key: str | None = Field(
        None, description="Key in these sidecars of images that must stay in one split"
    )
    features: FeatureColumns = Field(
        {},
        description=(
            "Further features: keys of .json sidecars, or txt for the text of .txt; as source.rows.features"
        ),
    )
    unpacked_bytes: Annotated[int, Field(ge=1, le=1 << 50)] = Field(
        256 << 30,
        description="Most bytes that a compressed tar unpacks to in the spool; members beyond are lost",
    )

    @field_validator("drop_labels", "class_names", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value
