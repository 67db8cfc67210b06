"""Lists of images that give the splits: train.txt, val.txt, test.txt of Pascal VOC's ``ImageSets/Main``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.readable import counted
from shardmill.infra.storage.locations import composed

FILES = {"train.txt": "train", "val.txt": "validation", "test.txt": "test"}


@dataclass(frozen=True)
class ImageSets:
    """The splits of images.

    Attributes:
        setting: names their folder.
        files: the lists.
        splits: name of an image without ending, in the composed form of Unicode -> its split.
        contradictions: name -> why it has no split, of images in several lists.
    """

    setting: str
    files: list[Table] = field(default_factory=list)
    splits: dict[str, str] = field(default_factory=dict)
    contradictions: dict[str, str] = field(default_factory=dict)

    def split_of(self, name: str, otherwise: str | None) -> str | None:
        """Return the split of an image; ``otherwise`` if it is in no list."""
        return self.splits.get(composed(name), otherwise)

    def contradiction_of(self, name: str) -> str | None:
        """Return why an image has no split, if it is in several lists."""
        return self.contradictions.get(composed(name))

    def warnings(self, annotated: Collection[str]) -> list[str]:
        """Return warnings about images that are in no list, and about names without annotation.

        Args:
            annotated: names of the annotated images.
        """
        if not self.files:
            return []
        found = []
        annotated = set(map(composed, annotated))
        listed = {*self.splits, *self.contradictions}
        if free := sum(1 for name in annotated if name not in listed):
            found.append(f"{counted(free, 'annotated image')} in none of the lists of {self.setting}")
        if lost := len(listed.difference(annotated)):
            found.append(f"{counted(lost, 'name')} in the lists of {self.setting} without an annotation")
        return found


def read_image_sets(
    folder: SourceFolder, place: str | None, setting: str = "source.objects.image_sets"
) -> ImageSets:
    """Read the lists in a folder of the source; none if the settings name no folder.

    The first word of a line is the name. Lists that are not there are left out.

    Args:
        folder: the source.
        place: the folder of the lists, or a pattern of several.
        setting: that names it.

    Raises:
        NotFoundError: none of them is there. ConfigError: one is not text.
    """
    if place is None:
        return ImageSets(setting)
    sets = ImageSets(setting)
    seen: dict[str, str] = {}
    for name, split in FILES.items():
        try:
            tables = find_files_named(folder, f"{place.rstrip('/')}/{name}", setting)
        except NotFoundError:
            continue
        for table in tables:
            sets.files.append(table)
            for image in _names(table, setting):
                if seen.setdefault(image, name) != name:
                    sets.contradictions[image] = f"it is in {seen[image]} and in {name}"
                sets.splits.setdefault(image, split)
    if not sets.files:
        raise NotFoundError(
            f"the folder {place} holds none of {', '.join(FILES)}", f"name another with {setting}"
        )
    return sets


def _names(table: Table, setting: str) -> list[str]:
    """Return the names of images in a list.

    Raises:
        ConfigError: it is not text.
    """
    try:
        text = table.folder.read_bytes(table.path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{table.name} is no list of images: {error}", f"look at {setting}") from error
    return [composed(word) for line in text.splitlines() for word in line.split()[:1]]


def place_of_lists(files: Collection[str], folder: str) -> str | None:
    """Return where the lists of images are: a folder, or a pattern of several; None if there are none.

    Args:
        files: URIs in the source.
        folder: end of the folder's path: ``ImageSets/Main``.
    """
    places = sorted({uri.rpartition("/")[0] for uri in files if uri.rpartition("/")[2] in FILES})
    parts = [place.split("/") for place in places if f"/{place}".endswith(f"/{folder}")]
    if not parts or any(len(part) != len(parts[0]) for part in parts):
        return None
    return "/".join(names[0] if len(set(names)) == 1 else "*" for names in zip(*parts, strict=True))
