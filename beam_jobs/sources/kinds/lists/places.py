"""Folders above the folders of classes: of splits, of images, and folders around everything.

::

    256_ObjectCategories/001.ak47/…                a folder around the classes
    seg_train/seg_train/sea/…    seg_pred/seg_pred/1.jpg    splits by a word; images without a class
    dataset/images/train/cat/…                     several of these
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shardmill.beam_jobs.sources.roles import is_place, split_of_words

_OF_VOC = "JPEGImages"  # in the folder of a year: VOC2012
_CLASS = re.compile(r"([A-Za-z]+(?:[ _-][A-Za-z]+)*)\.\d+\.[A-Za-z]+")


def class_of_name(name: str) -> str | None:
    """Return the class that the name of an image begins with: cat for cat.0.jpg; None if it has none."""
    found = _CLASS.fullmatch(name)
    return None if found is None else found[1]


def stem_places(images: Iterable[str]) -> list[str]:
    """Return the folders of images whose names all begin with one of several classes."""
    found: dict[str, list[str | None]] = {}
    for uri in images:
        folder, _, name = uri.rpartition("/")
        found.setdefault(folder, []).append(class_of_name(name))
    return [
        folder
        for folder, classes in found.items()
        if None not in classes and 1 < len(set(classes)) <= len(classes) // 2
    ]


@dataclass
class _Folder:
    """A folder with images in it or below: name -> folder in it; whether images lie directly in it."""

    name: str = ""
    has_images: bool = False
    folders: dict[str, _Folder] = field(default_factory=dict)

    def classes(self) -> list[_Folder]:
        """Return the folders in it that may be classes, or hold them."""
        return [
            one
            for name, one in self.folders.items()
            if name != self.name and not is_place(name) and not one.is_of_voc()
        ]

    def is_of_voc(self) -> bool:
        """Tell whether it is the folder of a year of Pascal VOC, or holds only such folders."""
        inner = self.folders.values()
        return _OF_VOC in self.folders or (bool(inner) and all(one.is_of_voc() for one in inner))

    def is_deep(self) -> bool:
        """Tell whether folders that may be classes lie in it, at any depth."""
        return bool(self.classes()) or any(one.is_deep() for one in self.folders.values())


def class_places(images: Iterable[str]) -> dict[str, str | None]:
    """Return the folders whose folders are classes -> the split that they are of; None if it is not said.

    Args:
        images: URIs of images, of every folder some.

    Returns:
        None of them if folders of splits lie beside deep folders that are no splits.
    """
    top = _Folder()
    for uri in images:
        folder = top
        for name in uri.split("/")[:-1]:
            folder = folder.folders.setdefault(name, _Folder(name))
        folder.has_images = True
    found: dict[str, str | None] = {}
    return found if _add(found, "", top, None) else {}


def inner_places(images: Iterable[str], places: Mapping[str, str | None]) -> dict[str, str | None] | None:
    """Return the folders of classes in folders of classes, if either may be the classes; None if not.

    The folders of some objects have folders of splits, or several of them other folders, or all of them have
    no image of their own; or several are named like splits.

    Args:
        images: URIs of images, of every folder some.
        places: as ``class_places`` returns them.
    """
    found: dict[str, str | None] = {}
    inner: dict[str, set[str]] = {}
    with_images: set[str] = set()
    for uri in images:
        for place, split in places.items():
            parts = uri.removeprefix(f"{place}/" if place else "").split("/")
            if (not place or uri.startswith(f"{place}/")) and len(parts) > 1:
                name = f"{place}/{parts[0]}".lstrip("/")
                while len(parts) > 3 and is_place(parts[1]) and split_of_words(parts[1]) is None:
                    name += f"/{parts.pop(1)}"  # amazon/images/bike/1.jpg
                found[name] = split
                inner.setdefault(name, set()).update(parts[1:2] if len(parts) > 2 else ())
                if len(parts) == 2:
                    with_images.add(name)
    counts = {name: sum(not is_place(one) for one in inner[name]) for name in found}
    are_above = len(found) > 1 and not with_images and all(counts.values())
    deep = {name: split for name, split in found.items() if counts[name] > (0 if are_above else 1)}
    of_splits = [name for name in found if any(split_of_words(one) for one in inner[name])]
    like_splits = [name for name in found if split_of_words(name.rpartition("/")[2])]
    return deep if max(map(len, (deep, of_splits, like_splits))) > 1 else None


def _add(found: dict[str, str | None], place: str, folder: _Folder, split: str | None) -> bool:
    """Add the folders of classes in a folder, or in the folders below; return whether they can be told."""
    inner = list(folder.folders.values())
    deep = [one for one in inner if one.is_deep()]
    around = [one for one in deep if is_place(one.name) or one.name == folder.name]
    is_alone = len(inner) == 1 and split is None
    if around and len(around) < len(deep):
        return False
    if not around and not (deep and is_alone):
        classes = folder.classes()
        if len(classes) > 1 or any(one.has_images or one.is_deep() for one in classes):
            found[place] = split
        return True
    return all(
        _add(found, f"{place}/{one.name}".lstrip("/"), one, split_of_words(one.name) or split) for one in deep
    )
