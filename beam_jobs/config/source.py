"""The source of the images: its kind, and the settings of each kind."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shardmill.beam_jobs.config.columns import (
    FORMER_OF_BOX_TABLES,
    RENAMED,
    ColumnsConfig,
    FeatureColumn,
    former,
    former_features,
)
from shardmill.beam_jobs.config.kinds import (
    ArchiveConfig,
    BoxTableConfig,
    ObjectsConfig,
    RowsConfig,
    TableConfig,
    TfdsConfig,
    UrlsConfig,
)
from shardmill.beam_jobs.config.masks import MasksConfig
from shardmill.infra.format.known_features import LabelKind
from shardmill.infra.settings import AlsoCalled, Settings, WrongValue

Layout = Literal["auto", "classes", "splits"]
_OF_TOOLS = ("labelme", "label_studio", "cvat", "via")  # for labelling images
OF_OBJECTS = ("coco", "voc", "box_table", "box_files", "yolo", "fiftyone", *_OF_TOOLS)
_UPRIGHT = ("yolo", *_OF_TOOLS)  # kinds whose boxes are of the upright image, unless a setting says otherwise
_OF_TABLES = ("table", "urls")

_MODELS: dict[str, type[Settings]] = {
    "columns": ColumnsConfig,
    "table": TableConfig,
    "urls": UrlsConfig,
    "rows": RowsConfig,
    "archive": ArchiveConfig,
    "tfds": TfdsConfig,
    "objects": ObjectsConfig,
    "objects.table": BoxTableConfig,
    "masks": MasksConfig,
}
_OF_FOLDERS_OF_MASKS = {"image_sets", "images", "masks", "image_suffix", "mask_suffix"}
_SEVERAL = {"label_separator", "label_columns", "target_columns"}
_OF_ONE_OBJECT = ColumnsConfig.model_fields.keys() - {"drop_labels", "merge_labels"}
# Kind -> groups of settings that it takes -> settings of the group that it refuses.
_GROUPS: dict[str, dict[str, set[str]]] = {
    "image_folder": {},
    "video": {"columns": {"mask"}, "table": set()},
    "lists": {"columns": _OF_ONE_OBJECT},
    "table": {"columns": set(), "table": set(), "masks": _OF_FOLDERS_OF_MASKS},
    "urls": {"columns": set(), "table": set(), "urls": set(), "masks": _OF_FOLDERS_OF_MASKS},
    "coco": {"columns": _OF_ONE_OBJECT - {"features"}, "objects": {"table", "image_sets", "task"}},
    "voc": {"columns": _OF_ONE_OBJECT - {"features"}, "objects": {"table", "task"}},
    "fiftyone": {
        "columns": _OF_ONE_OBJECT - {"features", "label"},
        "objects": {"table", "image_sets", "task"},
    },
    "yolo": {"columns": _OF_ONE_OBJECT - {"class_names", "classes_file"}, "objects": {"table", "image_sets"}},
    **{
        kind: {"columns": _OF_ONE_OBJECT, "objects": {"table", "image_sets", "task"}}
        for kind in ("labelme", "label_studio", "cvat", "box_files")
    },
    "via": {"columns": _OF_ONE_OBJECT - {"label"}, "objects": {"table", "image_sets", "task"}},
    "box_table": {
        "columns": _OF_ONE_OBJECT - {"image", "label", "split", "group", "features", "mask"},
        "objects": {"table", "image_sets", "task"},
        "objects.table": set(),
        "table": {"file", "prefix"},
    },
    "masks": {"masks": set()},
    "archive": {"columns": {*_SEVERAL, "mask", "image"}, "archive": set(), "masks": {"image_sets"}},
    "parquet": {"columns": set(), "rows": set(), "masks": _OF_FOLDERS_OF_MASKS},
    "arrays": {"columns": {*_SEVERAL, "mask"}, "rows": set()},
    "cifar": {"columns": _OF_ONE_OBJECT - {"class_names", "classes_file"}, "rows": {"compression"}},
    "tfrecord": {"columns": {"mask"}, "rows": set()},
    "array_record": {"columns": {"mask"}, "rows": set()},
    "tfds": {"columns": {*_SEVERAL, "mask"}, "tfds": set(), "rows": {"compression"}},
}
_OF_OTHER_KINDS: dict[str, set[str]] = {"columns": set(), "rows": set()}
_WITH_LAYOUT = ("image_folder", "archive", "video")
_OF_ONE_KIND_OF_LABELS = (*OF_OBJECTS, "masks")

# Newer than the digests of earlier releases: left out of them where unset.
_LATER: dict[str, frozenset[str]] = {
    "table": frozenset({
        "features", "class_names", "classes_file", "label_separator", "label_columns", "target_columns",
        "mask_column",
    }),
    "archive": frozenset({
        "features", "name_key", "classes_file", "drop_labels", "merge_labels", "split_key", "group_key",
    }),
    "rows": frozenset({"label_separator", "label_columns", "target_columns", "features", "mask"}),
}  # fmt: skip


def settings_taken(kind: str) -> dict[str, frozenset[str]]:
    """Return the settings that a kind of source takes, by group; those of ``source`` itself are under ""."""
    plain = {"files", "min_age_seconds"}
    plain |= {"layout"} if kind in _WITH_LAYOUT else set()
    plain |= {"labels"} if kind in OF_OBJECTS else set()
    plain |= set() if kind in _OF_ONE_KIND_OF_LABELS else {"labels", "label_edits"}
    taken = {"": frozenset(plain)}
    for group, refused in _GROUPS.get(kind, _OF_OTHER_KINDS).items():
        taken[group] = frozenset(_MODELS[group].model_fields.keys() - refused)
    return taken


class SourceConfig(Settings):
    """The source of the images."""

    renamed: ClassVar = RENAMED
    renamed_in: ClassVar = "source"

    kind: Annotated[str, AlsoCalled("source_kind", "source_type")] = Field(
        "image_folder",
        description=(
            "A kind that shardmill prepare --help lists; auto recognises it; or a module of your "
            "own, such as my_package.my_kind"
        ),
    )
    layout: Layout = Field(
        "auto",
        description=(
            "Classes: root/class/*; splits: root/train/class/*; auto: by the names of the top folders"
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
        description=("CSV with corrected classes, as an edited label-errors.csv: a path, a URI or a pattern"),
    )
    files: str | None = Field(
        None,
        description=("Path relative to the folder of the source, or a pattern; unset: all files"),
    )
    min_age_seconds: float = Field(
        0.0,
        ge=0,
        le=86400,
        description=("Leave files changed less than so long ago, which may still grow, to the next version"),
    )
    columns: ColumnsConfig = Field(
        ColumnsConfig(), description="What columns hold, and what becomes of the labels in them"
    )
    table: TableConfig = Field(TableConfig(), description="The tables of kinds table, urls and box_table")
    urls: UrlsConfig = Field(UrlsConfig(), description="How the images of kind urls are fetched")
    rows: RowsConfig = Field(
        RowsConfig(), description="The files of kinds whose images are rows, such as parquet"
    )
    archive: ArchiveConfig = Field(ArchiveConfig(), description="The archives of kind archive")
    tfds: TfdsConfig = Field(TfdsConfig(), description="The splits of kind tfds")
    objects: ObjectsConfig = Field(
        ObjectsConfig(), description="The objects of kinds with boxes, such as coco and yolo"
    )
    masks: MasksConfig = Field(MasksConfig(), description="The masks of labels = mask")
    options: dict[str, Any] = Field({}, description="Options of the kinds lists and video, or of your own")

    @property
    def label_kind(self) -> LabelKind:
        """The kind of labels that the images get."""
        if self.labels is not None:
            return self.labels
        if self.kind in OF_OBJECTS:
            return "multi"
        if self.kind == "masks" or self.columns.mask is not None:
            return "mask"
        if self.kind == "archive" and self.masks.classes:
            return "mask"
        if self.columns.target_columns:
            return "targets"
        return "multi" if self.columns.names_several else "class"

    @model_validator(mode="after")
    def _labels_and_columns_agree(self) -> Self:
        kind, columns, of_files = self.label_kind, self.columns, self.kind in ("image_folder", *_OF_TABLES)
        if columns.target_columns and kind != "targets":
            raise WrongValue(f"labels = {kind!r} and target_columns", "leave one of them out")
        if columns.names_several and kind != "multi":
            raise WrongValue(
                f"labels = {kind!r} and label_columns or label_separator", "leave one of them out"
            )
        without = kind in ("targets", "mask", "none") and self.kind not in OF_OBJECTS
        if without and (columns.drop_labels or columns.merge_labels):
            raise WrongValue(
                f"labels = {kind!r} has no labels that drop_labels or merge_labels could name",
                "leave these out",
            )
        if kind == "targets" and of_files and not columns.target_columns:
            raise WrongValue(
                "labels = 'targets' needs source.columns.target_columns",
                "name the columns with numbers there",
            )
        if kind == "multi" and self.kind == "image_folder":
            raise WrongValue(
                "a folder gives an image one class, and source.labels = 'multi', columns.label_columns or "
                "columns.label_separator ask for several",
                "name a table of labels: --set source.kind=table --set source.table.file=labels.csv",
            )
        if columns.class_names or columns.classes_file:
            if kind != "class" and self.kind in _OF_TABLES:
                raise WrongValue(
                    f"labels = {kind!r}, and class_names or classes_file name the one class of an image",
                    "leave these out",
                )
            if kind in ("targets", "none") and self.kind != "archive":
                raise WrongValue(
                    f"labels = {kind!r} has no classes that class_names or classes_file could name",
                    "leave these out",
                )
        if kind != "class" and self.label_edits is not None:
            raise WrongValue(
                f"labels = {kind!r}, and label_edits correct the one class of an image",
                "leave them out, and correct the source",
            )
        return self

    @model_validator(mode="after")
    def _settings_and_kind_agree(self) -> Self:
        if self.kind == "auto":  # checked again when the kind is known
            return self
        self._check_masks()
        kind, of_objects, taken = self.kind, self.kind in OF_OBJECTS, settings_taken(self.kind)
        if kind in _OF_TABLES and not self.table.file:
            raise WrongValue(
                f"kind {kind} needs the path of the table", "give it: --set source.table.file=labels.csv"
            )
        if kind == "box_table" and (self.table.file is not None or self.table.prefix):
            raise WrongValue(
                "kind box_table has its tables in source.objects.annotations, not in table.file",
                "leave table.file and table.prefix out",
            )
        # Groups of other kinds, what this kind lacks, and the kind that has it.
        for group, lacks, other in (
            ("table", "reads no table", "table"),
            ("urls", "fetches nothing", "urls"),
            ("rows", "reads no rows of files", "parquet"),
            ("archive", "reads no archives", "archive"),
            ("tfds", "is no dataset of TFDS", "tfds"),
            ("objects", "has no objects", "coco, voc, yolo or another with boxes"),
        ):
            values = getattr(self, group).model_dump(exclude_defaults=True)
            if values == {"coordinates": "stored"}:  # in manifests of every kind, of earlier releases
                continue
            if group not in taken and values:
                given = next(iter(values))
                raise WrongValue(
                    f"kind {kind} {lacks} (source.{group}.{given})", f"say --set source.kind={other}"
                )
        self._check_columns()
        if kind != "voc" and self.objects.image_sets is not None:
            raise WrongValue(
                "source.objects.image_sets is for kind voc", "give the annotation files a split each"
            )
        if kind != "yolo" and self.objects.task is not None:
            raise WrongValue("source.objects.task is for kind yolo", "leave it out")
        if of_objects and kind != "yolo" and not self.objects.annotations:
            examples = {"coco": "instances.json", "voc": "'Annotations/*.xml'", "fiftyone": "samples.json"}
            example = examples.get(kind, "boxes.csv")
            raise WrongValue(
                f"kind {kind} needs annotation files",
                f"name them: --set source.objects.annotations={example}",
            )
        if of_objects and self.label_kind not in ("multi", "mask") and kind != "fiftyone":
            raise WrongValue(
                f"kind {kind} gives images several labels",
                "leave source.labels out, or say mask: from polygons",
            )
        if kind == "masks" and self.label_kind != "mask":
            raise WrongValue("kind masks gives images a mask", "leave source.labels out")
        lists = any(part.image_list is not None for part in self.objects.annotations)
        if kind != "box_table" and (lists or self.objects.table != BoxTableConfig()):
            raise WrongValue(
                "image_list and source.objects.table are for kind box_table",
                "say --set source.kind=box_table",
            )
        return self

    def _check_columns(self) -> None:
        """Check that the kind takes the settings of columns, and that features have names of their own."""
        columns, taken = self.columns, settings_taken(self.kind).get("columns")
        for name in columns.model_dump(exclude_defaults=True):
            if not taken:
                raise WrongValue(
                    f"kind {self.kind} has no columns (source.columns.{name})",
                    "say --set source.kind=table or parquet",
                )
            if name not in taken:
                remedy = "leave it out"
                if name in ("label_columns", "label_separator", "target_columns"):
                    remedy = "name a column with all of them in columns.label, with labels = multi or targets"
                raise WrongValue(f"kind {self.kind} takes no columns.{name}", remedy)
        further = columns.further.items()
        if self.kind == "tfds" and any(one != FeatureColumn(column=one.column) for _, one in further):
            raise WrongValue(
                "kind tfds takes the types of its features from the metadata",
                "leave dtype, separator and length out of columns.features",
            )
        if self.kind in OF_OBJECTS and "objects" in columns.further:
            raise WrongValue(
                "features: 'objects' is the name of the boxes",
                'give the feature another, as in features = { my_objects = "objects" }',
            )
        if self.kind != "box_table":
            return
        boxes = self.objects.table
        of_objects = {*boxes.box_columns, columns.label_column, boxes.crowd_column, columns.mask}
        for name, features in further:
            if (column := features.column or name) in of_objects:
                raise WrongValue(
                    f"features: the column {column!r} tells of objects, which records have under objects/",
                    "name columns that tell of the image",
                )

    @property
    def has_relative_boxes(self) -> bool:
        """Whether the boxes of the source are relative to their images, not in pixels."""
        if self.kind == "box_table":
            return self.objects.table.units == "relative"
        return self.kind in ("tfds", "tfrecord", "yolo", "fiftyone")

    @property
    def has_upright_boxes(self) -> bool:
        """Whether boxes are of the upright image where the size of the annotated one does not tell."""
        usual = "upright" if self.kind in _UPRIGHT else "stored"
        return (self.objects.coordinates or usual) == "upright"

    def _check_masks(self) -> None:
        kind, column = self.label_kind, self.columns.mask
        is_drawn = self.kind in OF_OBJECTS or "." in self.kind  # kinds of users may draw masks
        if kind == "mask" and not (self.kind in ("masks", "archive") or column is not None or is_drawn):
            raise WrongValue(
                f"labels = 'mask', and kind {self.kind} has no masks",
                "say --set source.kind=masks or archive; or name the masks' column: source.columns.mask "
                "(kinds table, urls and parquet)",
            )
        if kind == "mask" and self.kind == "archive" and self.columns.further:
            raise WrongValue("images in archives with masks have no further features", "leave features out")
        if kind == "mask" and is_drawn:
            given = self.masks.model_dump(exclude_defaults=True).keys() - {"classes", "unknown"}
            if given:
                raise WrongValue(
                    f"source.masks.{min(given)} is for masks that are files",
                    "leave it out: polygons are drawn",
                )
        elif kind == "mask" and not self.masks.classes:
            raise WrongValue(
                "masks need the classes of their values",
                "give source.masks.classes: a list of names for the values 0, 1 and so on, or a table of "
                "names and values",
            )
        if self.masks.image_sets is not None and self.kind != "masks":
            raise WrongValue("source.masks.image_sets is for kind masks", "leave it out")
        if kind == "mask" and "mask" in self.columns.further:
            raise WrongValue("'mask' is the name of the masks", "give the feature another")
        of_objects = self.kind == "box_table"  # the column names masks of single objects
        if kind != "mask" and ((column is not None and not of_objects) or self.masks != MasksConfig()):
            raise WrongValue(f"labels = {kind!r} has no masks", "leave columns.mask and source.masks out")

    def without_effect(self) -> set[str]:
        """Return the names of groups that the kind does not use, and of newer settings that are unset."""
        taken = settings_taken(self.kind)
        groups = ("columns", "table", "urls", "objects", "rows", "archive", "tfds")
        unused = {group: group not in taken for group in groups} | {
            "labels": self.labels in (None, "class"),
            "masks": self.label_kind != "mask",
            "options": not self.options,
            "files": not self.files,
        }
        return {name for name, is_unused in unused.items() if is_unused}

    def in_use(self) -> dict[str, Any]:
        """Return the settings that change the written bytes, without groups of other kinds."""
        # The listing shows the effect of these.
        settings = self.model_dump(mode="json", exclude={"min_age_seconds", "label_edits"})
        unused = self.without_effect()
        found = {name: value for name, value in settings.items() if name not in unused}
        if "objects" in found:
            found["objects"]["coordinates"] = "upright" if self.has_upright_boxes else "stored"
        return found

    def effective(self) -> dict[str, Any]:
        """Return the settings that change the written bytes, in the form that digests are made from.

        The columns stand in the groups that had them before they were one, and unset newer settings are left
        out, so that each configuration keeps the digest that it had in earlier releases.
        """
        settings, columns = self.in_use(), self.columns
        settings.pop("columns", None)
        of_tables = settings.pop("table", {})
        if self.kind in _OF_TABLES:
            settings["table"] = of_tables | former(columns, "table")
        if "rows" in settings:
            own = columns if self.kind != "tfds" else columns.model_copy(update={"features": None})
            settings["rows"] |= former(own, "rows")
            if settings["rows"] == RowsConfig().model_dump(mode="json") | former(ColumnsConfig(), "rows"):
                del settings["rows"]
        if "archive" in settings:
            settings["archive"] |= former(columns, "archive")
        for group, later in _LATER.items():
            if group in settings:
                settings[group] = {
                    name: value for name, value in settings[group].items() if value or name not in later
                }
        if "tfds" in settings:
            settings["tfds"]["features"] = former_features(columns)
        if "objects" in settings:
            settings["objects"] = self._effective_objects(settings["objects"], of_tables)
        if "masks" in settings:  # the numbers of the classes are their order, which a digest does not cover
            settings["masks"] |= {"classes": list(self.masks.classes.items())}
            if self.masks.image_sets is None:  # newer than the digests of earlier releases
                del settings["masks"]["image_sets"]
        if "urls" in settings:
            settings["urls"] = self.urls.effective()
        return settings

    def _effective_objects(self, objects: dict[str, Any], of_tables: dict[str, Any]) -> dict[str, Any]:
        objects |= former(self.columns, "objects")
        for name, unset in (("image_sets", None), ("task", None), ("unannotated", "keep")):
            if objects[name] == unset:  # newer than the digests of earlier releases
                del objects[name]
        if self.kind != "box_table":
            if self.columns.further:
                objects["features"] = {
                    name: one.model_dump(mode="json") for name, one in self.columns.further.items()
                }
            del objects["table"]
            for part in objects["annotations"]:
                del part["image_list"]
            return objects
        objects["table"] |= former(self.columns, "objects.table")
        objects["table"] |= {name: of_tables[name] for name in FORMER_OF_BOX_TABLES}
        if not objects["table"]["features"]:
            del objects["table"]["features"]
        if self.columns.mask is not None:
            objects["table"]["mask"] = self.columns.mask
        return objects
