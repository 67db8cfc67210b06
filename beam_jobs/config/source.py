"""The source of the images: its kind, and the settings of each kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from shardmill.beam_jobs.config.sources.containers import ArchiveConfig, RowsConfig
from shardmill.beam_jobs.config.sources.masks import MasksConfig
from shardmill.beam_jobs.config.sources.objects import BoxTableConfig, ObjectsConfig
from shardmill.beam_jobs.config.sources.table import TableConfig
from shardmill.beam_jobs.config.sources.tfds import TfdsConfig
from shardmill.beam_jobs.config.sources.urls import UrlsConfig
from shardmill.infra.format.labels import LabelKind
from shardmill.infra.settings import AlsoCalled, Settings

Layout = Literal["auto", "classes", "splits"]
_OF_OBJECTS = ("coco", "voc", "box_table")
_OF_FILES = ("image_folder", "table", "urls", "archive", "masks")

_LATER_TABLE_KEYS = frozenset({
    "features", "class_names", "classes_file", "label_separator", "label_columns", "target_columns",
    "mask_column",
})  # fmt: skip
_LATER_ARCHIVE_KEYS = frozenset({
    "features", "name_key", "classes_file", "drop_labels", "merge_labels", "split_key", "group_key",
})  # fmt: skip
_LATER_ROWS_KEYS = frozenset({"label_separator", "label_columns", "target_columns", "features", "mask"})


class SourceConfig(Settings):
    """The source of the images."""

    kind: Annotated[str, AlsoCalled("source_kind", "source_type")] = Field(
        "image_folder",
        description=(
            "Kind of source (shardmill prepare --help lists them); auto recognises it; or the module "
            "of your own kind, such as my_package.my_kind"
        ),
    )
    layout: Layout = Field(
        "auto",
        description=(
            "Layout of the folder: root/class/* (classes), root/train/class/* (splits), or by the "
            "names of its top folders (auto)"
        ),
    )
    labels: LabelKind | None = Field(
        None,
        description=(
            "class: one class an image; multi: any number of classes; targets: numbers; mask: the "
            "class of each pixel; none: no labels. Unset: as the columns of the table say, else class"
        ),
    )
    label_edits: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description=(
            "CSV with corrected classes of single images, as an edited label-errors.csv: a path, a "
            "URI or a pattern"
        ),
    )
    files: str | None = Field(
        None,
        description=("Files that are the source: a path relative to its folder, or a pattern; unset: all"),
    )
    min_age_seconds: float = Field(
        0.0,
        ge=0,
        le=86400,
        description=(
            "Leave files changed less than so many seconds ago, which may still grow, to the next version"
        ),
    )
    table: TableConfig = Field(TableConfig(), description="The table of the kinds table and urls")
    urls: UrlsConfig = Field(UrlsConfig(), description="How the images of kind urls are fetched")
    rows: RowsConfig = Field(
        RowsConfig(), description="The files of kinds whose images are rows, such as parquet"
    )
    archive: ArchiveConfig = Field(ArchiveConfig(), description="The archives of kind archive")
    tfds: TfdsConfig = Field(TfdsConfig(), description="The splits and features of kind tfds")
    objects: ObjectsConfig = Field(
        ObjectsConfig(), description="The objects of the kinds coco, voc and box_table"
    )
    masks: MasksConfig = Field(MasksConfig(), description="The masks of labels = mask")
    options: dict[str, Any] = Field({}, description="Options of your own kind, as its module names them")

    @property
    def label_kind(self) -> LabelKind:
        """The kind of labels that the images get."""
        if self.labels is not None:
            return self.labels
        if self.kind in _OF_OBJECTS:
            return "multi"
        if self.kind == "masks" or self.table.mask_column is not None or self.rows.mask is not None:
            return "mask"
        if self.kind == "archive" and self.masks.classes:
            return "mask"
        if self.table.target_columns or self.rows.target_columns:
            return "targets"
        return "multi" if any(_names_several(columns) for columns in (self.table, self.rows)) else "class"

    @model_validator(mode="after")
    def _labels_and_columns_agree(self) -> Self:
        kind = self.label_kind
        for columns in (self.table, self.rows):
            if columns.target_columns and kind != "targets":
                raise ValueError(f"labels = {kind!r} and target_columns: leave one of them out")
            if _names_several(columns) and kind != "multi":
                raise ValueError(
                    f"labels = {kind!r} and label_columns or label_separator: leave one of them out"
                )
            if kind in ("targets", "mask", "none") and (columns.drop_labels or columns.merge_labels):
                raise ValueError(
                    f"labels = {kind!r} has no labels that drop_labels or merge_labels could name"
                )
        if kind not in ("class", "multi") and (self.archive.drop_labels or self.archive.merge_labels):
            raise ValueError(f"labels = {kind!r} has no labels that drop_labels or merge_labels could name")
        if (
            kind == "targets"
            and self.kind in ("image_folder", "table", "urls")
            and not self.table.target_columns
        ):
            raise ValueError("labels = 'targets' needs source.table.target_columns: the columns with numbers")
        if kind == "multi" and self.kind == "image_folder":
            raise ValueError("a folder gives an image one class: labels = 'multi' needs a table of labels")
        if kind != "class" and (self.table.class_names or self.table.classes_file):
            raise ValueError(
                f"labels = {kind!r}, and class_names or classes_file name the one class of an image"
            )
        if kind != "class" and self.label_edits is not None:
            raise ValueError(
                f"labels = {kind!r}, and label_edits correct the one class of an image: leave them out, and "
                "correct the source"
            )
        if kind in ("targets", "none") and (self.rows.class_names or self.rows.classes_file):
            raise ValueError(f"labels = {kind!r} has no classes that class_names or classes_file could name")
        return self

    @model_validator(mode="after")
    def _table_and_kind_agree(self) -> Self:
        if self.kind == "auto":  # checked again when the kind is known
            return self
        self._check_masks()
        reads_table = self.kind in ("table", "urls")
        if reads_table and not self.table.file:
            raise ValueError(
                f"kind {self.kind} needs the path of the table: --set source.table.file=labels.csv"
            )
        if not reads_table and self.table != TableConfig():
            raise ValueError(f"kind {self.kind} reads no table: say --set source.kind=table")
        if self.kind != "urls" and self.urls != UrlsConfig():
            raise ValueError(f"kind {self.kind} fetches nothing: say --set source.kind=urls")
        if self.kind in (*_OF_FILES, *_OF_OBJECTS) and self.rows != RowsConfig():
            raise ValueError(f"kind {self.kind} reads no rows of files: say --set source.kind=parquet")
        if self.kind != "archive" and self.archive != ArchiveConfig():
            raise ValueError(f"kind {self.kind} reads no archives: say --set source.kind=archive")
        if self.kind != "tfds" and self.tfds != TfdsConfig():
            raise ValueError(f"kind {self.kind} is no dataset of TFDS: say --set source.kind=tfds")
        if self.kind != "voc" and self.objects.image_sets is not None:
            raise ValueError(
                "source.objects.image_sets is for kind voc: give the annotation files a split each"
            )
        if self.kind in _OF_OBJECTS and not self.objects.annotations:
            example = {"coco": "instances.json", "voc": "'Annotations/*.xml'"}.get(self.kind, "boxes.csv")
            raise ValueError(
                f"kind {self.kind} needs annotation files: --set source.objects.annotations={example}"
            )
        if self.kind in _OF_OBJECTS and self.label_kind != "multi":
            raise ValueError(f"kind {self.kind} gives images several labels: leave source.labels out")
        if self.kind == "masks" and self.label_kind != "mask":
            raise ValueError("kind masks gives images a mask: leave source.labels out")
        if self.kind not in _OF_OBJECTS and self.objects != ObjectsConfig():
            raise ValueError(f"kind {self.kind} has no objects: say --set source.kind=coco, voc or box_table")
        lists = any(part.image_list is not None for part in self.objects.annotations)
        if self.kind != "box_table" and (lists or self.objects.table != BoxTableConfig()):
            raise ValueError(
                "image_list and source.objects.table are for kind box_table: say --set source.kind=box_table"
            )
        return self

    @property
    def has_relative_boxes(self) -> bool:
        """Whether the boxes of the source are relative to their images, not in pixels."""
        return self.kind == "tfds" or (self.kind == "box_table" and self.objects.table.units == "relative")

    def _check_masks(self) -> None:
        kind, column = self.label_kind, self.table.mask_column
        named = {"table": column, "urls": column, "parquet": self.rows.mask}
        if self.rows.mask is not None and self.kind != "parquet":
            raise ValueError("source.rows.mask is for kind parquet: leave it out")
        if kind == "mask" and not (self.kind in ("masks", "archive") or named.get(self.kind)):
            raise ValueError(
                "labels = 'mask' needs one of the kinds masks and archive, or the masks' column: "
                "source.table.mask_column (kinds table and urls), source.rows.mask (kind parquet)"
            )
        if kind == "mask" and self.archive.features:
            raise ValueError("images in archives with masks have no further features: leave features out")
        if kind == "mask" and not self.masks.classes:
            raise ValueError(
                "masks need the classes of their values, in source.masks.classes: a list of names for the "
                "values 0, 1 and so on, or a table of names and values"
            )
        if self.masks.image_sets is not None and self.kind != "masks":
            raise ValueError("source.masks.image_sets is for kind masks: leave it out")
        if kind == "mask" and "mask" in self.table.features:
            raise ValueError("'mask' is the name of the masks: give the feature another")
        if kind != "mask" and (column is not None or self.masks != MasksConfig()):
            raise ValueError(f"labels = {kind!r} has no masks: leave mask_column and source.masks out")

    def without_effect(self) -> set[str]:
        """Return the names of groups that the kind does not use, and of newer settings that are unset."""
        unused = {
            "table": self.kind not in ("table", "urls"),
            "labels": self.labels in (None, "class"),
            "urls": self.kind != "urls",
            "objects": self.kind not in _OF_OBJECTS,
            "masks": self.label_kind != "mask",
            "options": not self.options,
            "rows": self.kind in (*_OF_FILES, *_OF_OBJECTS),
            "archive": self.kind != "archive",
            "tfds": self.kind != "tfds",
            "files": not self.files,
        }
        return {name for name, is_unused in unused.items() if is_unused}

    def effective(self) -> dict[str, Any]:
        """Return the settings that change the written bytes.

        The groups of other kinds and unset newer settings are left out, so that configurations without them
        keep the digests of earlier releases.
        """
        # The listing shows the effect of these.
        settings = self.model_dump(mode="json", exclude={"min_age_seconds", "label_edits"})
        unused = self.without_effect() | ({"rows"} if self.rows == RowsConfig() else set())
        settings = {name: value for name, value in settings.items() if name not in unused}
        if "table" in settings:
            table = settings["table"]
            settings["table"] = {
                name: value for name, value in table.items() if value or name not in _LATER_TABLE_KEYS
            }
        if "objects" in settings:
            settings["objects"] = self.objects.effective(self.kind)
        if "rows" in settings:
            settings["rows"] = {
                name: value
                for name, value in settings["rows"].items()
                if value or name not in _LATER_ROWS_KEYS
            }
        if "masks" in settings:  # the numbers of the classes are their order, which a digest does not cover
            settings["masks"] |= {"classes": list(self.masks.classes.items())}
            if self.masks.image_sets is None:  # newer than the digests of earlier releases
                del settings["masks"]["image_sets"]
        if "archive" in settings:
            settings["archive"] = {
                name: value
                for name, value in settings["archive"].items()
                if value or name not in _LATER_ARCHIVE_KEYS
            }
        if "urls" in settings:
            settings["urls"] = self.urls.effective()
        return settings


def _names_several(columns: TableConfig | RowsConfig) -> bool:
    """Tell whether columns of several labels an image are named."""
    return bool(columns.label_columns) or columns.label_separator is not None
