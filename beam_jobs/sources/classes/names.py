"""Names of classes: those that ``filter.classes`` keeps, and those that are easily confused."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.infra.errors import ConfigError
from shardmill.infra.near_names import near_names

# Names of folders, without the year that may follow (train2017), that are hardly those of classes.
NO_CLASSES = frozenset({
    *SPLIT_OF_FOLDER, "image", "images", "img", "imgs", "jpegimages", "rgb", "leftimg", "leftimg8bit",
    "mask", "masks", "segmentationclass", "segmentationobject", "gtfine", "gtcoarse", "label", "labels",
    "annotation", "annotations", "imagesets", "bbox", "bboxes", "boxes", "data", "dataset", "datasets",
})  # fmt: skip

_NAMES_SHOWN = 6
_ALIKE_SHOWN = 3
_INVISIBLE = ("Zs", "Zl", "Zp", "Cc", "Cf")  # categories of Unicode
_DIFFER = "differ only in case, white space or Unicode normalisation"
_DIGITS = re.compile(r"[0-9]+$")
_MINUS_ONE = re.compile(r"-1(\.0*)?")  # Hugging Face's mark of images without a label
_WORD = re.compile(r"[a-z/]+")
_WORDS_FOR_NO_CLASS = frozenset({
    "not sure", "unsure", "skip", "skipped", "unknown", "n/a", "na", "nan", "none", "null", "undefined",
    "unlabeled", "unlabelled", "no label", "todo", "tbd", "invalid", "ignore", "don t know", "dont know",
})  # fmt: skip


def wanted_classes(classes: Sequence[str], config: PrepareConfig) -> frozenset[str] | None:
    """Return the classes that ``filter.classes`` keeps, or None if it keeps all.

    Raises:
        ConfigError: it names a class that is not there.
    """
    if config.filter.classes is None:
        return None
    for name in config.filter.classes:
        if name not in classes:
            near = near_names(name, classes)
            raise ConfigError(
                f"filter.classes names {name!r}, which is no class of the source",
                f"did you mean {near[0]!r}?" if near else f"there are: {quoted(classes)}",
            )
    return frozenset(config.filter.classes)


def look_alikes(classes: Sequence[str], remedy: str) -> list[str]:
    """Warn of classes whose names differ only in case, invisible characters or Unicode normalisation."""
    same: dict[str, list[str]] = {}
    for name in classes:
        seen = (letter for letter in name if unicodedata.category(letter) not in _INVISIBLE)
        same.setdefault(unicodedata.normalize("NFKC", "".join(seen).casefold()), []).append(name)
    alike = [names for names in same.values() if len(names) > 1]
    if len(alike) > _ALIKE_SHOWN:
        shown = "; ".join(f"{quoted(names)}{_written(names)}" for names in alike[:_ALIKE_SHOWN])
        more = len(alike) - _ALIKE_SHOWN
        warning = (
            f"{len(alike)} classes are written in several ways, which {_DIFFER}: {shown} and {more} more; "
            f"they stay separate classes: {remedy} if they are one"
        )
        return [warning]
    return [
        f"the classes {quoted(names)} {_DIFFER}{_written(names)}; they stay separate classes: {remedy} if "
        "they are one"
        for names in alike
    ]


def no_classes(classes: Sequence[str], remedy: str) -> list[str]:
    """Warn of classes that are probably no classes, such as "not sure" and "-1"."""
    found = [
        name
        for name in classes
        if " ".join(_WORD.findall(name.casefold())) in _WORDS_FOR_NO_CLASS or _MINUS_ONE.fullmatch(name)
    ]
    if not found:
        return []
    return [f"{quoted(found)} {'sounds' if len(found) == 1 else 'sound'} like no class: {remedy} if so"]


def plain_name(folder: str) -> str:
    """Return the name of a folder in lower case, without the number that it may end in."""
    return _DIGITS.sub("", folder.lower())


def quoted(names: Sequence[str]) -> str:
    """Return the names in quotes, the first few of them."""
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _written(names: list[str]) -> str:
    """The names in ASCII, in parentheses, if they hold characters that may look alike on a screen."""
    if all(name.isascii() for name in names):
        return ""
    return f" ({', '.join(ascii(name) for name in names[:_NAMES_SHOWN])})"
