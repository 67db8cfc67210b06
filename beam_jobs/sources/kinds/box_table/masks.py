"""Masks of single objects in files of their own, which a column names: those of Open Images."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.annotations.shapes import Shape
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns, SourceFault
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.masks import decode_mask
from shardmill.infra.codecs.polygons import rings_of_mask

_MISSING, _SEVERAL = "whose file is not there", "of whose name there are several files"
_MOST_PIXELS = 1 << 28


@dataclass
class MaskFiles:
    """The files of masks in a source, found by their names wherever they lie.

    Attributes:
        folder: the source.
        ignored: patterns of files that are not looked at.
        used: URIs of those that were read.
    """

    folder: SourceFolder
    ignored: tuple[str, ...]
    used: list[str] = field(default_factory=list)

    def shape_of(
        self, found: Annotations, name: str, size: tuple[float, float] | None, who: str
    ) -> Shape | None:
        """Return the outline of a mask; None, counted, if it cannot be read.

        Args:
            found: counts the masks that are broken.
            name: path of the file, or the end of it.
            size: height and width that the mask fills, in the unit of boxes; None: those of its pixels.
            who: the object, for people.
        """
        files = self._by_name.get(name.rpartition("/")[2], [])
        ends = [file for file in files if f"/{file.uri}".endswith(f"/{name.removeprefix('./')}")]
        if len(ends) != 1:
            found.skip("mask", _SEVERAL if ends else _MISSING, f"{who}: {name}")
            return None
        self.used.append(ends[0].uri)
        try:
            samples, _ = decode_mask(self.folder.read(ends[0]), _MOST_PIXELS, in_color=False)
        except (SourceFault, ImageRejected) as error:
            found.skip("mask", "that cannot be read", f"{who}: {error.message}")
            return None
        mask = (samples != 0).any(2)
        height, width = size or mask.shape
        scale = np.array([height / mask.shape[0], width / mask.shape[1]])
        return Shape([ring * scale for ring in rings_of_mask(mask)], has_holes=True)

    @cached_property
    def _by_name(self) -> dict[str, list[FileRef]]:
        files: dict[str, list[FileRef]] = {}
        for file in self.folder.walk(IgnorePatterns(self.ignored), splits_on_top=False):
            if file.ignored_by is None and file.fault is None:
                files.setdefault(file.ref.uri.rpartition("/")[2], []).append(file.ref)
        return files
