"""The objects of a YOLO dataset, from the label files of its images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmill.beam_jobs.sources.annotations.collecting import AnnotatedImage, Annotations
from shardmill.beam_jobs.sources.annotations.reading import read_together
from shardmill.beam_jobs.sources.kinds.yolo.description import Description
from shardmill.beam_jobs.sources.kinds.yolo.members import Member
from shardmill.beam_jobs.sources.kinds.yolo.places import Tree
from shardmill.beam_jobs.sources.kinds.yolo.rows import Form, LabelFile, lengths_tell, object_of, parse_rows
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.storage.locations import stem_of

_NO_NAME = "of a class without a name"

Read = Mapping[str, LabelFile | str]  # URI of a label file -> its rows, or why it cannot be read


@dataclass(frozen=True)
class LabelFiles:
    """The label files of a dataset, and what their rows mean.

    Attributes:
        tree: the files of the source.
        described: what the description says.
        names: number of a class -> its name; empty: the numbers are the names.
        task: "segment" or "obb", what rows of eight numbers are, if settings or the description tell.
        hint: what a name or a README tells of it instead, and which, or None.
    """

    tree: Tree
    described: Description
    names: Mapping[int, str]
    task: str | None
    hint: tuple[str, str] | None = None

    def add_images(self, found: Annotations, images: Sequence[Member]) -> set[str]:
        """Add all images with their objects, and label files whose image is not there.

        Returns:
            URIs of the label files of images.

        Raises:
            NotFoundError: no image has a label file. ConfigError: no row is good, or rows have two readings.
        """
        of_image = [self.tree.label_file(image.path) for image in images]
        used = {uri for uri in of_image if uri is not None}
        if not used:
            raise NotFoundError(
                "no image of the source has a label file of YOLO",
                "give the folder above images and labels as the source, or say another kind",
            )
        stems = {stem_of(uri) for uri in self.tree.images()}
        orphans = {u: stem for u, stem in self.tree.label_files() if u not in used and stem not in stems}
        read = dict(self._parsed([*sorted(used), *orphans]))
        form = self._form(read)
        seen: set[str] = set()
        for image, uri in zip(images, of_image, strict=True):
            # An image that is named for two splits contradicts itself, under an address of its own.
            row_uri = image.uri if uri is None or image.path in seen else f"{uri}#image=1"
            seen.add(image.path)
            rows = read[uri] if uri is not None else LabelFile()
            fault = rows if isinstance(rows, str) else None
            who = f"the image of {uri or image.uri}"
            number = found.add_image(AnnotatedImage(row_uri, who, image.path, image.split, fault=fault))
            if isinstance(rows, LabelFile) and uri is not None:
                self._add_rows(found, number, uri, rows, form)
        for uri, stem in orphans.items():
            rows = read[uri]
            if isinstance(rows, LabelFile) and rows.classes:
                found.add_image(AnnotatedImage(f"{uri}#image=1", f"the image of {uri}", stem))
        without = [image.path for image, uri in zip(images, of_image, strict=True) if uri is None]
        self._check(found, [path for path in without if self.tree.is_file(path)])
        return used

    def _parsed(self, uris: list[str]) -> Iterator[tuple[str, LabelFile | str]]:
        """Read label files; one that is no text is told in words."""
        for uri, data in read_together(self.tree.read, uris):
            try:
                yield uri, data if isinstance(data, str) else parse_rows(data.decode("utf-8-sig"))
            except UnicodeDecodeError as error:
                yield uri, f"{uri} is no text: {error}"

    def _form(self, read: Read) -> Form:
        """Return what the numbers of rows are.

        Raises:
            ConfigError: rows of eight numbers can be read in two ways.
        """
        if (points := self.described.key_points) is not None:
            return Form(len(points.names), self.described.per_point)
        task = self.task
        if task is None:
            are_outlines = lengths_tell(rows for rows in read.values() if isinstance(rows, LabelFile))
            if are_outlines is False and self.hint is not None:
                task, by = self.hint
                words = "oriented boxes" if task == "obb" else "outlines"
                log(f"rows of eight numbers are {words}, as {by} tells")
            elif are_outlines is False:
                raise ConfigError(
                    "the label files have rows of eight numbers: corners of oriented boxes, or outlines of "
                    "four points",
                    "say which: --set source.objects.task=obb; or --set source.objects.task=segment",
                )
        return Form(has_corners=task == "obb")

    def _add_rows(self, found: Annotations, image: int, uri: str, rows: LabelFile, form: Form) -> None:
        """Add the objects of a label file."""
        for number, why in rows.faults:
            found.leave_out(image, why, f"{uri}, line {number}")
        for number, class_number, values in rows.rows():
            name = self.names.get(class_number) if self.names else str(class_number)
            seen, who = object_of(values, form), f"{uri}, line {number}"
            if isinstance(seen, str) or name is None:
                found.leave_out(image, seen if isinstance(seen, str) else _NO_NAME, who)
                continue
            if self.described.key_points is not None:
                found.name_points(name, self.described.key_points)
            found.add_object(image, seen[0], name, shape=seen[1], who=who)

    def _check(self, found: Annotations, without: list[str]) -> None:
        """Say which images have no label file, and refuse label files of another form, without a good row.

        Raises:
            ConfigError: no row is good.
        """
        if without:
            images = counted(len(without), "image")
            found.warnings.append(f"{images} without a label file, so without objects (first {without[0]})")
        num_shapes, num_objects = len(found.shapes.of_object), len(found.names)
        if 0 < num_shapes < num_objects:
            found.warnings.append(
                f"{counted(num_objects - num_shapes, 'object')} of {num_objects:,} have a box alone, others "
                "more"
            )
        if not self.names:
            found.warnings.append(
                "no file names the classes: their numbers are their names; for others give "
                "source.columns.class_names"
            )
        if found.left_out and not found.names:
            ((why, count),) = found.left_out.most_common(1)
            raise ConfigError(
                f"no row of the label files is good: {count:,} {why} (first {found.first[why]})",
                "numbers are relative to the image, 0 to 1; those of key points need kpt_shape in data.yaml",
            )
