"""Objects in images, as texts and JSON files of well-known data sets and tools describe them.

``lines`` reads texts with an object a line (DOTA, KITTI, VisDrone, WIDER FACE), ``documents`` JSON (BDD100K,
CreateML, CrowdHuman, Datumaro, Labelbox, SA-1B, Supervisely, TT100K, VoTT). The form of each file is
recognised by its first bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.sources.annotations.collecting import HEAD_BYTES, AnnotatedImage, Annotations
from shardmill.beam_jobs.sources.annotations.listing import list_annotated
from shardmill.beam_jobs.sources.annotations.reading import AnnotationTable, read_together
from shardmill.beam_jobs.sources.annotations.tools.drawn import LEFT_OUT
from shardmill.beam_jobs.sources.annotations.tools.recognising import (
    recognise_documents,
    recognise_one_an_image,
)
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.box_files.documents import DOCUMENTS
from shardmill.beam_jobs.sources.kinds.box_files.forms import BAD_NUMBERS, Form, Picture
from shardmill.beam_jobs.sources.kinds.box_files.lines import TEXTS
from shardmill.beam_jobs.sources.kinds.coco.shapes import polygon_of
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.locations import stem_of

FORMS = (*TEXTS, *DOCUMENTS)


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the objects that annotation files name in it, and every image.

    Raises:
        NotFoundError: there is no such folder or annotation file, or no image that they name.
        ConfigError: a file of several images is of no known form.
    """

    def add_files(found: Annotations, tables: Sequence[AnnotationTable]) -> None:
        for table, content in read_together(AnnotationTable.content, tables):
            _add_file(found, table, content)

    return list_annotated(folder, config, add_files)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Return the files of one of the forms."""
    for form in FORMS:
        words = f"as {form.called} does"
        if form.image is None:
            found = recognise_one_an_image(
                "box_files", words, form.begins, form.ending, glance, settings, in_other_folders=True
            )
        else:
            found = recognise_documents(
                "box_files", words, form.begins, form.ending, glance, settings, form.image
            )
        if found is not None:
            return found
    return None


def _add_file(found: Annotations, table: AnnotationTable, content: bytes | str) -> None:
    """Add the images and objects of a file; ``content`` is what it holds, or why it cannot be read.

    Raises:
        ConfigError: a file of several images cannot be read.
    """
    form = None if isinstance(content, str) else _form_of(content)
    pictures: Sequence[Picture] = ()
    fault = content if isinstance(content, str) else None
    if fault is None and form is None:
        fault = "its file is of no known form" if content.strip() else None
        pictures = [Picture(None)]
    elif form is not None and isinstance(content, bytes):
        try:
            pictures = list(form.read(content.decode("utf-8-sig")))
        except (ValueError, RecursionError) as error:
            fault = f"its file cannot be read as {form.called} writes it: {error}"
    if fault is not None and (form is not None and form.image is not None):
        raise ConfigError(f"the annotation file {table.name}: {fault}", "correct it, or leave it out")
    for at, picture in enumerate(pictures or [Picture(None)], 1):
        _add(found, table, at, picture if fault is None else replace(picture, fault=fault))


def _form_of(content: bytes) -> Form | None:
    """Return the form of a file; None if it is of none, or empty."""
    head = content[:HEAD_BYTES]
    return next((form for form in FORMS if form.begins.search(head)), None)


def _add(found: Annotations, table: AnnotationTable, at: int, picture: Picture) -> None:
    """Add an image and its objects. One without a name is named like its file, or like it without ending."""
    who = f"image {at} of {table.name}"
    name = picture.name or stem_of(table.name.rpartition("/")[2])
    image = AnnotatedImage(
        table.row_uri(at), who, table.path_of(name), picture.split or table.part.split, picture.size,
        picture.fault, group=picture.group, ends=(name,),
    )  # fmt: skip
    number = found.add_image(image)
    for order, one in enumerate(picture.objects, 1):
        whose = f"object {order} of {who}"
        shape = one.shape
        if one.segmentation is not None:
            shape = polygon_of(found, one.segmentation, picture.size, whose)
        if one.left_out:
            found.skip(one.left_out, LEFT_OUT, whose)
        elif one.box is None and shape is None:
            found.leave_out(number, BAD_NUMBERS, whose)
        else:
            found.add_object(number, one.box, one.name, shape=shape, is_crowd=one.is_crowd, who=whose)
