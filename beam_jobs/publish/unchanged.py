"""Finding that a run would publish the newest version again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.execution.verdicts import reasons_to_retry
from shardmill.beam_jobs.publish.digests import Digests
from shardmill.beam_jobs.reasons import PASSING_REASONS
from shardmill.beam_jobs.schemas import READ, file_refs
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.dataset.version import DatasetVersion

_PASSING = pa.array(PASSING_REASONS)


def unchanged_version(
    newest: DatasetVersion | None, digests: Digests, listing: Listing, source: Reader, limits: RunnerConfig
) -> DatasetVersion | None:
    """Return the newest version, if this source and configuration made it and would make it again.

    All of its files must still be there, files that could not be read must still be unreadable, and the
    limits on time and memory must not have been raised for images that exceeded them.
    """
    if newest is None or newest.manifest.source_digest != digests.source:
        return None
    if set(reasons_to_retry(newest.manifest.config, limits)) & set(newest.manifest.quarantine):
        return None
    return newest if not newest.missing_files() and _is_still_unreadable(newest, listing, source) else None


def _is_still_unreadable(version: DatasetVersion, listing: Listing, source: Reader) -> bool:
    """Return whether the files that could not be read when the version was made still cannot be read.

    An image with a mask is lost if either cannot be read.
    """
    if not set(PASSING_REASONS) & set(version.manifest.quarantine):
        return True
    inputs = version.inputs()
    lost = inputs.filter(pc.and_(pc.equal(inputs["stage"], READ), pc.is_in(inputs["reason"], _PASSING)))
    reasons = dict(zip(lost["uri"].to_pylist(), lost["reason"].to_pylist(), strict=True))
    # The rows of the listing, since those of the version do not say which container holds an image.
    listed = listing.table.filter(pc.is_in(listing.table["uri"], lost["uri"].combine_chunks()))
    for file in file_refs(listed):
        try:
            source.read(file)
            if file.mask is not None:
                source.read(file.mask)
        except SourceFault as fault:
            if fault.reason == reasons[file.uri]:
                continue
        return False
    return True
