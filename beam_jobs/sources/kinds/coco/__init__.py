"""Objects in images, and captions, as the JSON files of COCO describe them: ``instances_train.json``.

The format: https://cocodataset.org/#format-data. Of an annotation its box, category, ``iscrowd``, polygon or
mask and key points are read; panoptic files have their segments in PNG files. An image without annotations is
an image without objects. Several files may tell of the same images: captions and key points join the images
of the others by their paths, and key points the objects with the same id.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.coco.documents import content_of, read_document
from shardmill.beam_jobs.sources.kinds.coco.reading import CocoReader
from shardmill.beam_jobs.sources.kinds.coco.recognising import recognise_coco
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that COCO files name in it, and every image they name.

    Raises:
        NotFoundError: there is no such folder or annotation file, or none of its images is there.
        ConfigError: an annotation file is not of this format.
    """
    segments: list[str] = []

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        reader = CocoReader(found, config.source.columns.further)
        kinds = [content_of(table) if len(tables) > 1 else "objects" for table in tables]
        joins = "objects" in kinds
        for table, kind in zip(tables, kinds, strict=True):
            if joins and kind == "points":  # before the objects that they join
                reader.add_points(read_document(table))
        for table, kind in zip(tables, kinds, strict=True):
            if not (joins and kind == "points"):
                reader.add(read_document(table))
        reader.finish()
        segments.extend(reader.segments)

    return list_annotated(folder, config, add_files, segments)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise COCO files."""
    return recognise_coco(glance)
