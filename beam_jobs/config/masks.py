"""Segmentation masks: the classes of their pixels, and where their files lie."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shardmill.infra.format.known_features import MAX_CLASSES
from shardmill.infra.settings import Settings, WholeText, WrongValue

_COLOR = "^#[0-9a-fA-F]{6}$"
# Where the classes leave it free, the value that most masks mark pixels of no class with.
_USUAL_IGNORED = 255

Value = Annotated[int, Field(ge=0, le=65_535)] | Annotated[str, Field(pattern=_COLOR), WholeText()]


class MasksConfig(Settings):
    """The masks of ``source.labels = "mask"``."""

    classes: dict[str, tuple[Value, ...]] = Field(
        {},
        description=(
            "Name of each class to its value in masks (of a palette: the index), its colour #rrggbb, "
            "or a list of them; a list of names has the values 0, 1 and so on"
        ),
    )
    ignore: tuple[Value, ...] | None = Field(
        None,
        description="Values or colours of pixels of no class; unset: 255, if it is no class",
    )
    unknown: Literal["quarantine", "ignore"] = Field(
        "quarantine", description="An image whose mask has other values"
    )
    unmasked: Literal["quarantine", "leave_out"] = Field("quarantine", description="An image without a mask")
    coordinates: Literal["stored", "upright"] = Field(
        "stored",
        description=(
            "Pixels that masks are of where EXIF turns the file and the mask's size does not tell: "
            "stored (as in the file) or upright (as shown)"
        ),
    )
    images: Annotated[str, Field(min_length=1)] = Field(
        "images",
        description="Folder of the images, of the kind masks (. for any); those around may name a split",
    )
    masks: Annotated[str, Field(min_length=1)] = Field(
        "masks", description="Folder of the masks beside it, with the images' paths and names"
    )
    image_sets: str | None = Field(
        None,
        description=(
            "Folder with train.txt, val.txt and test.txt, as ImageSets/Segmentation of Pascal VOC; "
            "of the kind masks"
        ),
    )
    image_suffix: str = Field("", description="End of the names of images, before .jpg: _leftImg8bit")
    mask_suffix: str = Field("", description="End of the names of masks, before .png: _gtFine_labelIds")

    @field_validator("classes", mode="before")
    @classmethod
    def _names_or_values(cls, value: object) -> object:
        if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
            value = {name: number for number, name in enumerate(value)}
        if isinstance(value, dict):
            return {name: (one,) if isinstance(one, int | str) else one for name, one in value.items()}
        return value

    @field_validator("ignore", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, int | str) else value

    @field_validator("images", "masks")
    @classmethod
    def _is_a_path_within(cls, path: str) -> str:
        parts = path.strip("/").split("/")
        if path == ".":
            return path
        if not all(parts) or {".", ".."} & set(parts):
            raise ValueError("must be the name of a folder, or a path of several without . and ..")
        return "/".join(parts)

    @model_validator(mode="after")
    def _values_are_clear(self) -> Self:
        stated = [value for group in self.classes.values() for value in group]
        ignored = list(self.ignore or ())
        if len(self.classes) > MAX_CLASSES:
            raise WrongValue(
                f"{len(self.classes):,} classes; masks have at most {MAX_CLASSES:,}",
                "give several values one name, as in classes = { road = [7, 8] }",
            )
        if not all(self.classes.values()):
            empty = next(name for name, values in self.classes.items() if not values)
            raise WrongValue(
                f"the class {empty!r} has no value and no colour", "give it one, as in classes = { road = 7 }"
            )
        if len({isinstance(value, str) for value in stated + ignored}) > 1:
            raise WrongValue(
                "classes and ignore have values and colours", "name all by values, or all by colours"
            )
        lowered = [value.lower() if isinstance(value, str) else value for value in stated + ignored]
        if twice := sorted({str(value) for value in lowered if lowered.count(value) > 1}):
            raise WrongValue(f"{', '.join(twice)} stands for two things", "name it once in classes or ignore")
        if self.images == self.masks and self.image_suffix == self.mask_suffix:
            raise WrongValue(
                "images and masks are the same files", "give them folders or suffixes that differ"
            )
        return self

    @property
    def in_color(self) -> bool:
        """Tell whether classes are colours."""
        return any(isinstance(value, str) for group in self.classes.values() for value in group)

    def codes(self) -> tuple[tuple[int, ...], ...]:
        """Return the values of each class, in order; a colour is 0xRRGGBB."""
        return tuple(tuple(map(_code, group)) for group in self.classes.values())

    def ignored(self) -> tuple[int, ...]:
        """Return the values of pixels that belong to no class; a colour is 0xRRGGBB."""
        if self.ignore is not None:
            return tuple(map(_code, self.ignore))
        used = {value for group in self.codes() for value in group}
        return () if self.in_color or _USUAL_IGNORED in used else (_USUAL_IGNORED,)

    def at_decoding(self) -> dict[str, Any]:
        """Return the settings that change stored masks, JSON-able; the others concern the listing."""
        return {
            "classes": list(self.classes.items()),
            "ignored": self.ignored(),
            "unknown": self.unknown,
            "coordinates": self.coordinates,
        }


def _code(value: int | str) -> int:
    if isinstance(value, int):
        return value
    return int(re.sub("^#", "", value), 16)
