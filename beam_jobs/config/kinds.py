"""The settings of single kinds of sources: their files, besides the columns and the labels in them."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shardmill.beam_jobs.config.columns import Names
from shardmill.infra.settings import Settings, WholeText, WrongValue

TableFormat = Literal["auto", "csv", "jsonl", "parquet"]


class TableConfig(Settings):
    """The files of tables: of the kinds table, urls and box_table."""

    file: str | None = Field(
        None,
        description=(
            "The table of kinds table and urls: a path (relative to the source), a URI or a pattern"
        ),
    )
    format: TableFormat = Field(
        "auto",
        description=(
            "Format: csv has a header line; auto: by the ending .csv, .tsv, .txt, .jsonl, .ndjson, "
            ".parquet or .pq"
        ),
    )
    prefix: str = Field(
        "",
        description=(
            "Folder within the source in which relative paths begin; . for the source, {folder} for "
            "each table's own; unset: either of these"
        ),
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        None, description="Character between values of csv; unset: the one that gives the columns above"
    )
    quotes: bool = Field(True, description="Values of csv may stand in double quotes")
    encoding: str | None = Field(
        None, description="Encoding of csv and jsonl; unset: as a byte order mark says, else UTF-8"
    )

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


ArchiveLayout = Literal["auto", "folders", "archives", "webdataset"]
RowCompression = Literal["auto", "none", "gzip", "zlib"]


class RowsConfig(Settings):
    """The files of the kinds whose images are rows: parquet, arrays, tfrecord, array_record and tfds."""

    splits_from_names: bool = Field(
        True,
        description=("Take splits from names of files or folders, as train-00000-of-00002.parquet"),
    )
    compression: RowCompression = Field("auto", description="Of tfrecord files; auto: by the content")


class ArchiveConfig(Settings):
    """The archives of ``source.kind = "archive"``: tar, also compressed, and zip."""

    layout: ArchiveLayout = Field(
        "auto",
        description=(
            "folders: class folders, also below split folders; archives: an archive a class; "
            "webdataset: sidecars give labels"
        ),
    )
    prefix: str | None = Field(
        None,
        description=("Folder of the class folders; unset: a single folder around all is skipped"),
    )
    splits_by_name: bool = Field(
        True, description="Take splits from the archives' names (train-0001.tar) if all have one"
    )
    name_key: str | None = Field(
        None,
        description="Key of the class's name in .json; wins over .cls and columns.label",
    )
    unpacked_bytes: Annotated[int, Field(ge=1, le=1 << 50)] = Field(
        256 << 30,
        description="Most bytes that a compressed tar unpacks to; members beyond are lost",
    )


PlaceOfSplit = Literal["train", "validation", "test", "chosen", "none"]


class TfdsConfig(Settings):
    """The splits of ``source.kind = "tfds"``."""

    splits: dict[str, PlaceOfSplit] = Field(
        {},
        description=(
            "Name of a split to train, validation, test, chosen (Shardmill divides it) or none (left "
            "out). Unset: by its name"
        ),
    )


DEFAULT_OPT_OUT = ("noai", "noimageai", "noindex", "noimageindex", "none", "tdm-reservation")


class UrlsConfig(Settings):
    """Fetching of the images of ``source.kind = "urls"``."""

    contact: Annotated[str, Field(pattern=r"^[!-'*-~][ -'*-~]{0,199}$"), WholeText()] | None = Field(
        None,
        description="Page or e-mail address for operators of servers, sent in the User-Agent",
    )
    connections: Annotated[int, Field(ge=1, le=1024)] = Field(64, description="Most requests at a time")
    connections_per_host: Annotated[int, Field(ge=1, le=64)] = Field(
        4, description="Most requests at a time to one host"
    )
    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        0, description="Least time between two requests to one host"
    )
    retries: Annotated[int, Field(ge=0, le=20)] = Field(3, description="How often a request is repeated")
    backoff_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        1, description="Pause before the first repetition; each further one is twice as long"
    )
    max_wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300,
        description=("Longest pause; an address whose server asks for more (Retry-After) is quarantined"),
    )
    connect_seconds: Annotated[float, Field(gt=0, le=600)] = Field(
        10, description="Time limit for a connection"
    )
    read_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        30, description="Longest time without a byte"
    )
    total_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        300, description="Time limit for a request"
    )
    max_redirects: Annotated[int, Field(ge=0, le=20)] = Field(5, description="Most redirects of an address")
    opt_out: Names = Field(
        DEFAULT_OPT_OUT,
        description=(
            "Directives of X-Robots-Tag that reserve an image; tdm-reservation is TDM-Reservation: 1"
        ),
    )
    allow_private_hosts: bool = Field(False, description="Ask hosts without a public address too")

    def effective(self) -> dict[str, Any]:
        """Return the settings that decide which images are used; the others only pace the requests."""
        return self.model_dump(mode="json", include={"opt_out", "allow_private_hosts", "max_redirects"})


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
        description="Table with the column of images, or .txt file with a name a line, of all images; "
        "kind box_table only",
    )


class BoxTableConfig(Settings):
    """The columns of boxes in the tables of ``source.kind = "box_table"``; the others: source.columns."""

    box_columns: Names = Field(
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
        "pixels", description="Pixels, or relative to the image (0 to 1)"
    )
    crowd_column: str | None = Field(
        None,
        description="1 for a box around a group of objects, else 0",
    )
    size_columns: tuple[str, ...] = Field((), description="Height and width of the annotated image (pixels)")
    names_file: str | None = Field(
        None,
        description="CSV without header, label,name a line, as class-descriptions-boxable.csv of Open Images",
    )

    @model_validator(mode="after")
    def _columns_are_complete(self) -> Self:
        if len(self.box_columns) not in (1, 4):
            raise WrongValue(
                f"box_columns names {len(self.box_columns)} columns", "name four, or one with lists"
            )
        if len(self.size_columns) not in (0, 2):
            raise WrongValue(
                f"size_columns names {len(self.size_columns)} columns", "name two, height and width"
            )
        return self


class ObjectsConfig(Settings):
    """The objects in the images of kinds with boxes, such as ``source.kind = "coco"`` and ``"yolo"``."""

    annotations: tuple[AnnotationFile, ...] = Field(
        (),
        description=(
            "A path, or tables with file, images and split; kind yolo: data.yaml, if there are several"
        ),
    )
    image_sets: str | None = Field(
        None,
        description=("Folder with train.txt, val.txt and test.txt, as ImageSets/Main of Pascal VOC"),
    )
    unannotated: Literal["keep", "leave_out"] = Field(
        "keep", description="What becomes of an image without objects that are kept"
    )
    coordinates: Literal["stored", "upright"] | None = Field(
        None,
        description=(
            "Pixels that boxes are of where EXIF turns the file and its size does not tell: stored "
            "(as in the file) or upright (as shown); unset: stored for coco, voc and box_table, else upright"
        ),
    )
    task: Literal["segment", "obb"] | None = Field(
        None,
        description=(
            "What rows of eight numbers are, kind yolo only: outlines (segment) or corners of oriented boxes "
            "(obb); unset: as data.yaml or other rows tell"
        ),
    )
    table: BoxTableConfig = Field(BoxTableConfig(), description="The columns of boxes of kind box_table")

    @field_validator("annotations", mode="before")
    @classmethod
    def _path_or_tables(cls, value: object) -> object:
        if isinstance(value, str | dict):
            value = (value,)
        if isinstance(value, list | tuple):
            return tuple({"file": one} if isinstance(one, str) else one for one in value)
        return value
