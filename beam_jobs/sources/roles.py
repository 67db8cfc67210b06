"""Find which columns of a source hold the image, its label, split and group, and further features.

Every kind whose images are rows says which columns its files have, and what each may hold. The settings
(``source.columns``) name those that are meant; the rest is recognised here, by what a column holds or by its
name. Where several fit, the user is asked. Tables are recognised by the same names, and a file or a folder
gives a split by the words in its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.sources.class_names import NO_CLASSES, plain_name
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.known_features import BOXES, LabelKind
from shardmill.infra.near_names import near_names

# Names of columns, in lower case; the first that is there is taken.
IMAGE_NAMES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "bytes")
PATH_NAMES = (
    "path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "image_file",
    "image_name", "image_id", "img", "id",
)  # fmt: skip
ADDRESS_NAMES = ("url", "image_url", "img_url", "image_link", "link", "coco_url", "flickr_url")
LABEL_NAMES = ("label", "class", "class_name", "label_name", "category", "target", "category_name")
LIST_NAMES = ("labels", "classes", "tags", "categories", "targets")  # columns with several labels
# Of records of tf.train.Example, in which the text of a class often stands beside its number: texts first.
RECORD_LABEL_NAMES = (
    "label_name", "image/class/text", "class_name", "label_text", "label", "image/class/label", "class",
    "cls", "image/label", "target",
)  # fmt: skip
RECORD_LIST_NAMES = ("labels", "image/class/labels", "targets", "tags")
ARRAY_WORDS = {
    "image": ("images", "image", "imgs", "img", "x", "pixels"),
    "label": ("labels", "label", "y", "targets", "target", "classes"),
}
# MNIST calls its test images "t10k".
SPLIT_WORDS = SPLIT_OF_FOLDER | {"t10k": "test"}

_WORD = re.compile(r"[a-z0-9]+")
_JOINED = re.compile(r"([a-z])([A-Z])")
_NUMBER = re.compile(r"[0-9]+$")
_SHOWN = 20


@dataclass(frozen=True)
class Column:
    """A column that the files of a source have.

    Attributes:
        name: as the files have it.
        kind: type of its values, for people; "" if it says nothing.
        holds_images: whether its values may be encoded images.
        is_image: the source says that they are.
        is_class: the source says that they are classes.
        is_empty: it has no value where it was looked at.
    """

    name: str
    kind: str = ""
    holds_images: bool = False
    is_image: bool = False
    is_class: bool = False
    is_empty: bool = False


@dataclass(frozen=True)
class Offer:
    """The columns of a source.

    Attributes:
        where: the file or record that was looked at, for people.
        noun: what a column is called there, such as "feature".
        columns: in the order of the file.
        label_names: names of columns of one label, the first that is there is taken.
        list_names: names of those with several values.
    """

    where: str
    noun: str
    columns: Sequence[Column]
    label_names: Sequence[str] = LABEL_NAMES
    list_names: Sequence[str] = LIST_NAMES

    def names(self, columns: Iterable[Column] | None = None) -> list[str]:
        """Return the names of some columns; of all if None is given."""
        return [column.name for column in (self.columns if columns is None else columns)]


@dataclass(frozen=True)
class Roles:
    """Names of the columns of a source.

    Attributes:
        image: with the image.
        label: with the class, labels or numbers; None if other columns hold them, or there are none.
        split: with the split, or None.
        group: with the key of the images that stay in one split, or None.
        others: with labels in columns of their own, and further features.
    """

    image: str
    label: str | None
    split: str | None = None
    group: str | None = None
    others: tuple[str, ...] = ()

    def in_words(self, noun: str, names: str = "") -> str:
        """Return the roles for people; ``names``, behind the label, tells of the names of classes."""
        labels = f", labels in {self.label!r}{names}" if self.label is not None else ""
        others = f", further {noun}s {', '.join(map(repr, self.others))}" if self.others else ""
        return f"images in the {noun} {self.image!r}{labels}{others}"


def needs_label(settings: ColumnsConfig, kind: LabelKind) -> bool:
    """Tell whether there must be a column of labels, because no other columns hold them."""
    return kind == "class" or (
        kind in ("multi", "targets") and not (settings.label_columns or settings.target_columns)
    )


def asked_columns(settings: ColumnsConfig, kind: LabelKind) -> tuple[str, ...]:
    """Return the columns that hold labels of their own, and further features."""
    of_labels = settings.target_columns if kind == "targets" else settings.label_columns
    of_features = (asked.column or name for name, asked in settings.further.items())
    return tuple(dict.fromkeys([*(of_labels if kind in ("multi", "targets") else ()), *of_features]))


def refused_objects(place: str, which: str) -> UsageError:
    """Return the error of an export whose objects are not read; ``which`` cannot give them."""
    return UsageError(
        f"{place} have objects, whose boxes {which} cannot give",
        "export them with --format tfds for their boxes, or yolo for a shape too, and import that; or take "
        "their classes alone: --set source.labels=multi",
    )


def roles_of(
    offer: Offer,
    settings: ColumnsConfig,
    kind: LabelKind,
    *,
    may_lack: bool = False,
    first: Roles | None = None,
) -> Roles:
    """Find the role of each column.

    Args:
        offer: the columns.
        settings: names of columns that the user gives.
        kind: kind of the labels.
        may_lack: a record may lack a further feature, so the one that was looked at does not tell whether
            there is such a column.
        first: the roles in the first file of the source, which hold for all.

    Raises:
        ConfigError: a column is not there or cannot have its role, or which one is meant cannot be told.
        UsageError: it is an export of objects.
    """
    image = image_of(offer, settings.image or (first.image if first else None), settings.mask)
    label = None
    if needs_label(settings, kind):
        label = settings.label or (first.label if first else _recognised_label(offer, kind))
        if label is None:
            names = [name for column in offer.columns if (name := column.name) and not column.holds_images]
            if BOXES in names:
                raise refused_objects(f"the rows of {offer.where}", "they")
            raise ConfigError(
                f"which {offer.noun} of {offer.where} holds the label cannot be told; it has {_shown(names)}",
                "name it with --set source.columns.label=NAME; or say which labels there are: --set "
                "source.labels=multi, targets, mask (with source.columns.mask, source.masks.classes) or none",
            )
    others = asked_columns(settings, kind)
    checked = others if not may_lack else tuple(name for name in others if name in _of_labels(settings))
    named = [("label", label), ("split", settings.split), ("group", settings.group)]
    named += [(_setting_of(name, settings), name) for name in checked]
    for key, each in named:
        if each is not None:
            check_there(offer, key, each)
    return Roles(image, label, settings.split, settings.group, others)


def image_of(offer: Offer, given: str | None, mask: str | None = None) -> str:
    """Return the column with the images.

    It is the given one, or the only one that the source calls so, that may hold images, or that has one of
    the usual names; ``mask`` is the column of the masks.

    Raises:
        ConfigError: it is not there or cannot hold images, or which one is meant cannot be told.
    """
    holding = [column for column in offer.columns if column.holds_images and column.name != mask]
    if given is not None:
        check_there(offer, "image", given)
        if not any(column.name == given and column.holds_images for column in offer.columns):
            kind = next(column.kind for column in offer.columns if column.name == given)
            words = f"holds {kind}, not images" if kind else "cannot hold images"
            raise ConfigError(
                f"the {offer.noun} {given!r} of {offer.where} {words}",
                f"name a {offer.noun} of encoded images with --set source.columns.image=NAME",
            )
        return given
    described = [column for column in holding if column.is_image]
    for candidates in (described, holding, [one for one in holding if one.name.lower() in IMAGE_NAMES]):
        if len(candidates) == 1:
            return candidates[0].name
    if holding:
        raise ConfigError(
            f"{offer.where} has several {offer.noun}s that could hold images: "
            f"{', '.join(offer.names(described or holding))}",
            "say which one with --set source.columns.image=NAME",
        )
    shown = ", ".join(
        f"{column.name} ({column.kind})" if column.kind else repr(column.name)
        for column in offer.columns[:_SHOWN]
    )
    raise ConfigError(
        f"{offer.where} has no {offer.noun} that could hold images; it has {shown or 'none'}",
        f"name the {offer.noun} with --set source.columns.image=NAME; if a column names image files, use "
        "--set source.kind=table",
    )


def _recognised_label(offer: Offer, kind: LabelKind) -> str | None:
    """Return the column of labels that the source describes, or that has one of the usual names, or None."""
    described = [column.name for column in offer.columns if column.is_class]
    if len(described) == 1 and kind != "targets":
        return described[0]
    there = {column.name for column in offer.columns if not column.is_empty}
    names = (*(offer.list_names if kind in ("multi", "targets") else ()), *offer.label_names)
    return next((name for name in names if name in there and (not described or name in described)), None)


def check_there(offer: Offer, key: str, name: str) -> None:
    """Check that the source has a column exactly once.

    Raises:
        ConfigError: it is not; names the setting ``source.columns.<key>`` and the nearest column.
    """
    there = offer.names()
    if (count := there.count(name)) == 1:
        return
    near = near_names(name, there)
    raise ConfigError(
        f"{offer.where} has {count or 'no'} {offer.noun}{'s'[: count > 1]} {name!r} for the {key}; it has "
        + _shown(there),
        f"did you mean --set source.columns.{key}={near[0]}?"
        if near and near[0] != name
        else f"name it with --set source.columns.{key}=NAME, or choose other files with source.files",
    )


def _of_labels(settings: ColumnsConfig) -> tuple[str, ...]:
    return (*settings.label_columns, *settings.target_columns)


def _setting_of(name: str, settings: ColumnsConfig) -> str:
    """Return the setting that names one of the further columns."""
    groups = {"label_columns": settings.label_columns, "target_columns": settings.target_columns}
    return next((key for key, names in groups.items() if name in names), "features")


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) or "none"


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: runs of letters and digits."""
    return _WORD.findall(name.lower())


def split_of_name(uri: str) -> str | None:
    """Return the split that a file name gives (``train-00000-of-00002``), or else the nearest of its folders.

    A name with the words of two splits gives none.
    """
    for part in reversed(uri.split("/")):
        found = {SPLIT_WORDS[word] for word in words_of(part) if word in SPLIT_WORDS}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def is_place(folder: str) -> bool:
    """Tell whether the name of a folder is that of a split or of images, rather than of a class."""
    return plain_name(folder) in NO_CLASSES or split_of_words(folder) is not None


def split_of_words(name: str) -> str | None:
    """Return the split that the words of a name give: TrainImages.txt, val1.txt; train_val gives train."""
    words = {_NUMBER.sub("", word) for word in words_of(_JOINED.sub(r"\1 \2", name))}
    found = {SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}
    if found == {"train", "validation"} or (not found and "trainval" in words):
        return "train"
    return found.pop() if len(found) == 1 else None
