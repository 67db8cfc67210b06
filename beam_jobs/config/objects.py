"""Objects in images, with boxes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from infra.settings import Settings


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
    image_sets: str | None = Field(
        None,
        description="Folder within the source with train.txt, val.txt and test.txt, as in ImageSets/Main of "
        "Pascal VOC: the names of images a line, without ending; kind voc only",
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
