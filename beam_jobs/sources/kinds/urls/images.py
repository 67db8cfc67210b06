"""Reading of fetched images from the spool of the run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from shardmill.beam_jobs.schemas import CHANGED, UNREADABLE, VANISHED, FileRef
from shardmill.beam_jobs.sources.fetching.store import RunStore, content_tag
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.filesystem import Storage


@dataclass(frozen=True)
class FetchedImages:
    """The bytes that a run has fetched.

    Attributes:
        spool: folder of unfinished work of the run; None outside of a run, when no bytes are kept.
    """

    spool: Storage | None

    def read(self, file: FileRef) -> bytes:
        """Read the bytes of an address, if they are those that were listed.

        Raises:
            SourceFault: they are not kept, could not be fetched again, or have changed meanwhile.
        """
        if self.spool is None:
            raise SourceFault(UNREADABLE, "fetched bytes are kept only until the version is published")
        try:
            data = RunStore(self.spool).get(file.uri)
        except NotFoundError as error:
            raise SourceFault(VANISHED, "it was listed, but could not be fetched again") from error
        if len(data) != file.size_bytes or content_tag(hashlib.sha256(data).digest()) != file.mtime_ns:
            raise SourceFault(CHANGED, "the server sent other bytes than when it was listed")
        return data
