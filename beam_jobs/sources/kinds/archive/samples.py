"""Which sidecars describe an image: those of its whole name, of a part of it, or of its sample (WebDataset).

The key of a sample is a name up to the first dot of its last part. Names may have further dots all the same::

    0001.jpg       0001.cls                        a sample with one image
    0001.left.jpg  0001.right.jpg  0001.cls        one label for both images of a sample
    0001.img.jpg   0001.label.cls                  also when no name goes on with another
    22.05.jpg      22.05.cls       22.06.jpg ...   names with dots: an image each, and not one sample "22"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardmill.infra.storage.names import stem_of


def sample_key(name: str) -> str:
    """Return the key of the sample that a member belongs to: its name up to the first dot."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"


class Sidecars:
    """Finds the sidecars of images, by their stems.

    Args:
        stems: names of the sidecars without ending.
        images: names of the images.
    """

    def __init__(self, stems: Iterable[str], images: Iterable[str]) -> None:
        self._stems = frozenset(stems)
        self._of_sample: dict[str, list[str]] = {}
        for stem in sorted(self._stems):
            if (key := sample_key(stem)) != stem:
                self._of_sample.setdefault(key, []).append(stem)
        # Samples in which a sidecar has the whole name of an image: their names have dots.
        dotted = self._stems.intersection(map(stem_of, images))
        self._dotted = {key for stem in dotted if (key := sample_key(stem)) != stem}

    def of(self, name: str) -> list[str]:
        """Return the stems of the sidecars that describe an image; none if there is none.

        The first that is there: the whole name, a part of it up to a dot, or all of the sample if their names
        do not go on with those of images.
        """
        for stem in _beginnings(stem_of(name)):
            if stem in self._stems:
                return [stem]
        key = sample_key(name)
        return [] if key in self._dotted else self._of_sample.get(key, [])


def _beginnings(stem: str) -> Iterator[str]:
    """Yield a stem and what is left of it without the parts behind its dots, the longest first."""
    key = sample_key(stem)
    while len(stem) > len(key):
        yield stem
        stem = stem.rpartition(".")[0]
    yield key
