"""Objects in images, with boxes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shardmill.beam_jobs.config.sources.table import FeatureColumns, TableConfig, TableFormat
from shardmill.infra.settings import Settings


class AnnotationFile(Settings):
    """Annotation files whose images lie in one folder."""

    file: Annotated[str, Field(min_length=1)] = Field(
        description="A path relative to the source, an absolute path or a URI; with * or ? several files"
    )
    images: str = Field("", description="Folder within the source that the names of images begin in")
    split: Literal["train", "validation", "test"] | None = Field(
        None, description="Split of these images; unset: it is chosen"
    )
    image_list: str | None = Field(
        None,
        description="Table with path_column, or .txt file with a name a line, of all images, also of those "
        "without objects; kind box_table only",
    )


class BoxTableConfig(Settings):
    """The columns of the tables of ``source.kind = "box_table"``."""

    path_column: str = Field(
        "path", description="Column with the path of the image; its ending may be missing"
    )
    label_column: str = Field(
        "label", description="Column with the class, or the list of classes of all objects"
    )
    box_columns: tuple[str, ...] = Field(
        ("xmin", "ymin", "xmax", "ymax"),
        description=(
            "Four columns of a box's numbers, in the order of box_format; or one with a list of four "
            "numbers, or of such lists"
        ),
    )
    box_format: Literal["xyxy", "yxyx", "xywh", "cxcywh"] = Field(
        "xyxy",
        description=(
            "xyxy: left, top, right, bottom edge; yxyx: top, left, bottom, right; xywh: left, top, "
            "width, height; cxcywh: middle, width, height"
        ),
    )
    units: Literal["pixels", "relative"] = Field(
        "pixels", description="Unit of the boxes: pixels, or relative to the image (0 to 1)"
    )
    crowd_column: str | None = Field(
        None,
        description="Column of 0 and 1: 1 for a box around a group of objects",
    )
    size_columns: tuple[str, ...] = Field(
        (), description="Columns with height and width of the annotated image (pixels)"
    )
    split_column: str | None = Field(
        None, description="Column with the split (train, val, test); an empty value is chosen"
    )
    group_column: str | None = Field(
        None, description="Column with the key of the images that must stay in one split"
    )
    names_file: str | None = Field(
        None,
        description="CSV without header, label,name a line, as class-descriptions-boxable.csv of Open Images",
    )
    features: FeatureColumns = Field(
        {},
        description="Further features, the same in all rows of an image; as source.table.features",
    )
    format: TableFormat = Field("auto", description="Format of the tables; auto: by their ending")
    delimiter: str | None = Field(
        None, description="Character between the values of csv; unset: the one that gives the columns above"
    )
    quotes: bool = Field(True, description="Values of csv may stand in double quotes")
    encoding: str | None = Field(
        None, description="Encoding of csv and jsonl; unset: as a byte order mark says, else UTF-8"
    )

    @model_validator(mode="after")
    def _columns_are_complete(self) -> Self:
        if len(self.box_columns) not in (1, 4):
            raise ValueError("box_columns: name four columns, or one with lists")
        if len(self.size_columns) not in (0, 2):
            raise ValueError("size_columns: name two columns, height and width")
        return self

    @model_validator(mode="after")
    def _features_are_of_images(self) -> Self:
        if "objects" in self.features:
            raise ValueError(
                "features: 'objects' is the name of the boxes: give the feature another, as in "
                'features = { my_objects = "objects" }'
            )
        of_objects = {*self.box_columns, self.label_column, self.crowd_column}
        for name, asked in self.features.items():
            if (column := asked.column or name) in of_objects:
                raise ValueError(
                    f"features: the column {column!r} tells of objects, which records have under objects/: "
                    "name columns that tell of the image"
                )
        return self

    @field_validator("box_columns", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    def table(self) -> TableConfig:
        """Return what reading the rows needs, as the settings of a table.

        Raises:
            ValueError: the delimiter or the encoding is none.
        """
        names = ("path_column", "split_column", "group_column", "format", "delimiter", "quotes", "encoding")
        return TableConfig(**{name: getattr(self, name) for name in names})

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        self.table()
        return self


class ObjectsConfig(Settings):
    """The objects in the images of ``source.kind = "coco"``, ``"voc"`` and ``"box_table"``."""

    annotations: tuple[AnnotationFile, ...] = Field(
        (), description="Annotation files: a path, or tables with file, images and split"
    )
    image_sets: str | None = Field(
        None,
        description=(
            "Folder with train.txt, val.txt and test.txt as ImageSets/Main of Pascal VOC; kind voc only"
        ),
    )
    coordinates: Literal["stored", "upright"] = Field(
        "stored",
        description=(
            "Pixels that boxes are of where EXIF turns the file and its size does not tell: stored "
            "(as in the file) or upright (as shown)"
        ),
    )
    drop_labels: tuple[str, ...] = Field((), description="Classes whose objects are left out")
    merge_labels: dict[str, str] = Field(
        {}, description="Class as the annotation names it to the class that it becomes"
    )
    table: BoxTableConfig = Field(BoxTableConfig(), description="The columns of the tables of kind box_table")

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

    def effective(self, kind: str) -> dict[str, Any]:
        """Return the settings that change the written bytes of a kind, without unset newer ones."""
        settings = self.model_dump(mode="json")
        if self.image_sets is None:
            del settings["image_sets"]
        if kind != "box_table":
            del settings["table"]
            for part in settings["annotations"]:
                del part["image_list"]
        elif not self.table.features:
            del settings["table"]["features"]
        return settings
