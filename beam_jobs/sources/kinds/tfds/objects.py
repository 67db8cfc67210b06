"""Objects in images: ``Sequence({"bbox": BBoxFeature, "label": ClassLabel})``, which is stored as lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmill.beam_jobs.sources.kinds.tfds.metadata import Leaf
from shardmill.infra.errors import ConfigError

# Names of a sequence's features that mark boxes around groups of objects, or difficult objects.
_CROWDS = ("is_crowd", "is_group_of", "is_difficult")


@dataclass(frozen=True)
class ObjectKeys:
    """The features of the objects.

    Attributes:
        prefix: key of the sequence, with a slash.
        boxes, label: the lists of boxes and of class numbers.
        crowd: the list that marks groups and difficult objects; None if there is none.
    """

    prefix: str
    boxes: Leaf
    label: Leaf
    crowd: Leaf | None

    @property
    def leaves(self) -> list[Leaf]:
        """All of them."""
        return [self.boxes, self.label, *([self.crowd] if self.crowd is not None else [])]


def find_objects(leaves: Sequence[Leaf]) -> ObjectKeys | None:
    """Find the sequence that has one list of boxes and one of classes; None if there is none.

    Raises:
        ConfigError: there are several.
    """
    found = []
    for boxes in leaves:
        if not (boxes.is_box and boxes.is_list and "/" in boxes.key):
            continue
        prefix = boxes.key.rpartition("/")[0] + "/"
        own = [leaf for leaf in leaves if leaf.key.startswith(prefix)]
        labels = [leaf for leaf in own if leaf.role == "class" and leaf.is_list]
        named = [leaf for leaf in labels if leaf.key == f"{prefix}label"] or labels
        if len(named) == 1 and sum(leaf.is_box for leaf in own) == 1:
            crowds = [leaf for name in _CROWDS for leaf in own if leaf.key == prefix + name and leaf.is_list]
            found.append(ObjectKeys(prefix, boxes, named[0], crowds[0] if crowds else None))
    if len(found) > 1:
        raise ConfigError(
            f"the dataset has several lists of objects: {', '.join(one.boxes.key for one in found)}",
            "take none of them for objects: --set source.labels=none",
        )
    return found[0] if found else None
