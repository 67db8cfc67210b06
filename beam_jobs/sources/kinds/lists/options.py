"""The options of kind lists: which files list images, and where folders have the names of classes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shardmill.infra.settings import Settings

OF_LIST = "{folder}"  # value of ``images``

Column = Annotated[int, Field(ge=1)]
Split = Literal["train", "validation", "test"]


class ImageList(Settings):
    """A file with a line for each image. Its columns are counted from 1."""

    file: str = Field(description="Path relative to the source, or a pattern with * or ?")
    images: str = Field(
        "",
        description="Folder in which the paths begin; {folder}: that of the list; *: images are found by "
        "their names alone, wherever they lie; empty: the source",
    )
    ids: str | None = Field(
        None, description="List of number and path of each image, if the lines begin with such a number"
    )
    separator: str | None = Field(None, description="Text between the columns; unset: white space")
    skip: Annotated[int, Field(ge=0)] = Field(0, description="Lines before the first image")
    image: Annotated[int, Field(ge=0)] = Field(
        1, description="Column of the image; 0: the lines follow the images of the folder by name"
    )
    label: Column | Literal["folder", "columns"] | None = Field(
        None,
        description="Column of the class; folder: the class is the folder in the path; columns: the other "
        "columns have 1 where the class of their title applies; unset: the list gives no class",
    )
    group: Column | None = Field(None, description="Column with the key of images that stay in one split")
    split: Split | None = Field(None, description="Split of the listed images")
    splits: dict[str, Split] = Field({}, description="Value of the last column to the split that it means")


class Options(Settings):
    """Options of kind lists."""

    lists: tuple[ImageList, ...] = Field((), description="The lists")
    folders: dict[str, Split | Literal[""]] = Field(
        {}, description="Folder with a folder for each class -> its split, or empty to have it chosen"
    )
    stems: tuple[str, ...] = Field(
        (), description="Folders of images whose names begin with their class, as cat.0.jpg"
    )
    names: str | None = Field(
        None, description="File with the name of each class: number or code and name, or a name a line"
    )
