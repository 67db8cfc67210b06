"""The containers of a source, opened when they are read."""

from __future__ import annotations

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.container import Container
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.arguments import checked

_MAX_OPEN = 16


@checked
class Containers:
    """Opens the containers of a source when they are read. The last few stay open. Picklable."""

    def __init__(self, folder: SourceFolder) -> None:
        self._folder = folder
        self._open: dict[str, Container] = {}

    def __reduce__(self) -> tuple[type[Containers], tuple[SourceFolder]]:
        return Containers, (self._folder,)

    def of(self, file: FileRef) -> Container:
        """Return the container of a member, open, and the same as when it was listed.

        Raises:
            SourceFault: it is gone, changed or unreadable. StorageError: this machine is at fault.
        """
        uri = file.container
        assert uri is not None, "a member has a container"
        container = self._open.pop(uri, None)
        if container is None:
            container = self._folder.open_container(uri)
        container.check_unchanged(file.mtime_ns)
        self._open[uri] = container  # the newest is last, so the first is the least recently used
        if len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open))).close()
        return container
