"""Export a version or a view to another format: part by part, several at a time, resumable.

Every record is checked against its checksum and its row of the index, and the records of each split are
counted: an export with fewer than the version has cannot come into being.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.exports.formats import Format, format_named
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan, plan_export, read_batches
from shardmill.infra.dataset.exports.target import CHECKSUMS_FILE, FileMade, PartFiles, Target
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.errors import AccountingError, Cancelled, DataError, UsageError
from shardmill.infra.own_code import faults_of_own_code
from shardmill.infra.plugins import versions_of
from shardmill.infra.processes.process import num_cpus
from shardmill.infra.storage.objects.hub import is_on_hub

OnProgress = Callable[[int, int], None]  # records done, records in all

_PAGE = "docs/export.md"
_MOST_AT_A_TIME = 4  # parts; each holds a batch of records in memory


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    Attributes:
        destination: the folder or URI.
        summary: the content of ``export.json``.
        linked: whether the shards are links to the version's own shards.
        unchanged: whether the same export was there already.
    """

    destination: str
    summary: dict[str, Any]
    linked: bool = False
    unchanged: bool = False

    @property
    def num_records(self) -> int:
        """Number of records, over all splits."""
        return int(self.summary["num_examples"])

    @property
    def num_shards(self) -> int:
        """Number of parts, over all splits."""
        return sum(split["num_shards"] for split in self.summary["splits"].values())

    @property
    def num_bytes(self) -> int:
        """Bytes of the parts that were written; links count as 0."""
        return 0 if self.linked else int(self.summary["num_bytes"])


def export(
    version: DatasetVersion,
    destination: str | Path,
    format_name: str = "tfds",
    *,
    copy: bool = False,
    on_progress: OnProgress | None = None,
) -> Exported:
    """Export a version or view to ``destination``.

    Args:
        version: what to export.
        destination: a folder that does not exist, or an empty place in an object store. The rest of the
            same export, which was interrupted, is continued.
        format_name: one of ``FORMATS``, or a plugin.
        copy: copy shards even where links would do.
        on_progress: told of the records that are done, and of all.

    Raises:
        UsageError: something else is there already, or the format cannot hold this version.
        CorruptDataError: the version is not whole. StorageError: something cannot be written.
        LockedError: another process exports to the same place.
    """
    if version.is_joined:
        raise UsageError(f"{version.ref} are several data sets", "export each by itself")
    if is_on_hub(str(destination)):
        command = f"shardmill push {version.ref} {destination} --format {format_name}"
        raise UsageError(f"{destination} is on the Hub, which takes commits", command)
    form, plugin = format_named(format_name)
    plan = plan_export(version, format_name, copy=copy, plugins=versions_of([plugin]))
    if not plan.parts:
        raise UsageError(f"{version.ref} has no records to export", "use another query or version")
    with faults_of_own_code({} if plugin is None else {plugin.module: plugin.setting}, _PAGE):
        return _exported(form, plan, destination, on_progress)


def _exported(form: Format, plan: Plan, destination: str | Path, on_progress: OnProgress | None) -> Exported:
    _check_samples(plan, form)
    form.check(plan)
    target = Target(destination)
    linked = form.links(plan, target.destination)
    found = target.finished(plan)
    if found is not None:
        return Exported(str(destination), found, linked, unchanged=True)
    plan.version.check_whole()
    try:
        with target.opened(plan):
            made = _Work(plan, form, target, on_progress, linked=linked).done()
            summary = _summarised(plan, form, target, made)
            target.complete(summary)
        target.clear_lock()
    except DataError:
        target.discard()
        raise
    return Exported(str(destination), summary, linked)


def _check_samples(plan: Plan, form: Format) -> None:
    """Refuse images that no other reader of the format was compared on.

    Raises:
        UsageError: images have other samples than 8 bits of grey or RGB.
    """
    samples, ref = plan.version.manifest.samples, plan.version.ref
    if not samples.is_common and not form.holds_samples:
        raise UsageError(
            f"the images of {ref} are {samples}, and this format holds 8 bits of grey or RGB",
            "export the format webdataset or folder, or prepare the source with image.depth = 8 and "
            "image.channels = 1 or 3",
        )


class _Work:
    """Writes the parts of an export with several threads."""

    def __init__(
        self, plan: Plan, form: Format, target: Target, on_progress: OnProgress | None, *, linked: bool
    ) -> None:
        self._plan, self._form, self._target, self._linked = plan, form, target, linked
        self._on_progress = on_progress
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._num_done = 0

    def done(self) -> list[FileMade]:
        """Write all parts that are not finished; return the files of all."""
        with ThreadPoolExecutor(min(_MOST_AT_A_TIME, num_cpus()), "shardmill-export") as pool:
            parts = [pool.submit(self._part, part) for part in self._plan.parts]
            try:
                wait(parts, return_when=FIRST_EXCEPTION)
            finally:  # also where Ctrl-C interrupts: the others end at their next batch
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
        failed = [part for part in parts if not part.cancelled() and part.exception() is not None]
        for part in failed:
            if not isinstance(part.exception(), Cancelled):
                part.result()
        return [file for part in parts for file in part.result()]

    def _part(self, part: Part) -> list[FileMade]:
        known = self._target.known(part)
        if known is not None:
            self._tell(part.num_examples)
            return known
        files = PartFiles(self._target.storage, are_links=self._linked)
        number = self._form.write(self._plan, part, self._batches(part), files)
        if number != part.num_examples:
            raise AccountingError(
                f"{part.stem} has {number} records, {part.shard.path} has {part.num_examples}",
                "this is a defect of Shardmill, please report it",
            )
        if self._linked:
            self._tell(number)
        self._target.note(part, files.made)
        return files.made

    def _batches(self, part: Part) -> Iterator[Batch]:
        for batch in read_batches(self._plan, part):
            yield batch
            self._tell(len(batch.records))

    def _tell(self, num_records: int) -> None:
        if self._stop.is_set():
            raise Cancelled("stopped, because another part failed")
        with self._lock:
            self._num_done += num_records
            if self._on_progress is not None:
                self._on_progress(self._num_done, self._plan.num_examples)


def _summarised(plan: Plan, form: Format, target: Target, parts: list[FileMade]) -> dict[str, Any]:
    """Write the files that describe the export, and the list of checksums; return the summary."""
    files = PartFiles(target.storage)
    for path, data in form.describe(plan, parts).items():
        files.write(path, data)
    everything = sorted([*parts, *files.made], key=lambda file: file.path)
    checksums = "".join(f"{file.sha256}  {file.path}\n" for file in everything).encode()
    files.write(CHECKSUMS_FILE, checksums)
    manifest = plan.version.manifest
    return {
        "dataset": plan.version.name,
        "version": plan.version.version,
        **plan.version.describe_view(),
        "format": plan.format_name,
        "classes": manifest.classes,
        "num_examples": plan.num_examples,
        "splits": plan.counts(),
        "num_files": len(everything),
        "num_bytes": sum(file.num_bytes for file in parts),
        "checksums": CHECKSUMS_FILE,
        "checksums_sha256": sha256_hex(checksums),
        "digest": plan.digest,
    } | ({"plugins": plan.plugins} if plan.plugins else {})
