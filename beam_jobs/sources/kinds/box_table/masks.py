"""Masks of single objects in files of their own, which a column names: those of Open Images."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.annotations.naming import PathEnds
from shardmill.beam_jobs.sources.annotations.shapes import Shape, rings_of_file
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import IgnorePatterns, SourceFault
from shardmill.infra.codecs.formats import ImageRejected

_MISSING, _SEVERAL = "whose file is not there", "of whose name there are several files"


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
        uris = self._ends.ending_in(name)
        if len(uris) != 1:
            found.skip("mask", _SEVERAL if uris else _MISSING, f"{who}: {name}")
            return None
        self.used.append(uris[0])
        try:
            rings, own = rings_of_file(self.folder.read(self._files[uris[0]]))
        except (SourceFault, ImageRejected) as error:
            found.skip("mask", "that cannot be read", f"{who}: {error.message}")
            return None
        scale = np.array(size or own) / own
        return Shape([ring * scale for ring in rings], has_holes=True)

    @cached_property
    def _files(self) -> dict[str, FileRef]:
        walk = self.folder.walk(IgnorePatterns(self.ignored), splits_on_top=False)
        return {file.ref.uri: file.ref for file in walk if file.ignored_by is None and file.fault is None}

    @cached_property
    def _ends(self) -> PathEnds:
        return PathEnds(self._files)
