"""Images behind the http and https addresses of a table, fetched politely.

The table has the settings of the kind ``table``; its paths are addresses. A run fetches them before it lists
them (``shardmill.beam_jobs.sources.fetching``), so the listing has the size and the digest of each image.
From there on all is as with files. The bytes stay in the spool until the version is published. A later
version asks whether an image has changed, and fetches it again only if it has, or if it must be encoded in
another way.

``listing`` makes one listing of the addresses of images and masks, and of what fetching them found.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig, SourceConfig
from shardmill.beam_jobs.reasons import CHANGED, UNREADABLE, VANISHED
from shardmill.beam_jobs.schemas import MASK_COLUMNS, FileRef, has_masks
from shardmill.beam_jobs.sources.fetching.rounds import fetch_all, settled_uris
from shardmill.beam_jobs.sources.fetching.store import ANSWERS_SCHEMA, KeptAnswers, RunStore, content_tag
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Workplace
from shardmill.beam_jobs.sources.kinds.table.recognising import recognise_table
from shardmill.beam_jobs.sources.kinds.urls.listing import attached, fill_in, last_answers, read_urls
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.glance import Glance, Recognised
from shardmill.infra.errors import NotFoundError
from shardmill.infra.progress import log
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every address and every row of the table, and fetch nothing: sizes are 0.

    Raises:
        NotFoundError: there is no such table, no row in it, or no address.
        ConfigError: the table cannot be read as the settings say, or lacks a column that they name.
    """
    return _complete(read_urls(folder, config).listing, config)


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise one table with a column of addresses and one of labels."""
    return recognise_table(glance, settings, of_addresses=True)


def list_fetched(folder: SourceFolder, config: PrepareConfig, place: Workplace) -> Listing:
    """Fetch the addresses of the table, and list them with what was found.

    Raises:
        NotFoundError, ConfigError: see ``list_inputs``.
        StorageError: the spool cannot be written. Cancelled: the run was stopped.
    """
    urls, settings = read_urls(folder, config), config.source.urls
    store, kept = (
        RunStore(place.spool),
        KeptAnswers(place.dataset, f"{folder.uri} {config.source.table.file}"),
    )
    requests, known = urls.wanted(), kept.read()
    answered = settled_uris(store.answers())
    fetch_all(requests, known, answered, store, settings, config.image.max_bytes)
    answers = last_answers(store.answers(), requests)
    kept.write(_with_validators(answers, known))
    log(_summary(answers, known))
    return _complete(fill_in(urls.listing, answers), config)


def _complete(listing: Listing, config: PrepareConfig) -> Listing:
    """Attach masks, if images have some."""
    return attached(listing, config.source.masks) if config.source.label_kind == "mask" else listing


def make_readable(
    source: SourceFolder, config: PrepareConfig, references: pa.Table, scratch: Storage
) -> None:
    """Fetch the bytes of references that have not changed on the server, and yet must be read again.

    Args:
        source: holds the table.
        config: settings of the run.
        references: REFERENCE_SCHEMA, and MASK_COLUMNS of images with masks.
        scratch: the spool of the run.
    """
    store = RunStore(scratch)
    wanted = references["uri"].to_pylist()
    if has_masks(references):
        wanted += references[MASK_COLUMNS[0].name].to_pylist()
    missing = store.without_bytes(list(dict.fromkeys(wanted)))
    if not missing:
        return
    log(f"{counted(len(missing), 'image')} must be read again, and their bytes are fetched once more")
    requests = read_urls(source, config).requests
    requests = requests.filter(pc.is_in(requests["uri"], pa.array(missing, pa.string())))
    nothing, none = ANSWERS_SCHEMA.empty_table(), pa.array([], pa.string())
    fetch_all(requests, nothing, none, store, config.source.urls, config.image.max_bytes)


def open_reader(source: SourceFolder, config: PrepareConfig, scratch: Storage | None) -> FetchedImages:
    """Open the reader of the fetched bytes."""
    return FetchedImages(scratch)


def _with_validators(answers: pa.Table, known: pa.Table) -> pa.Table:
    """The answers to remember: of each image that was ever fetched the last one."""
    fetched = answers.filter(pc.is_valid(answers["sha256"]))
    others = known.filter(pc.invert(pc.is_in(known["uri"], fetched["uri"].combine_chunks())))
    return pa.concat_tables([fetched, others]).sort_by("uri").combine_chunks()


def _summary(answers: pa.Table, known: pa.Table) -> str:
    """One line about what was fetched."""
    fetched = answers.filter(pc.is_valid(answers["sha256"]))
    before = known["sha256"].take(pc.index_in(fetched["uri"], known["uri"].combine_chunks()))
    num_same = pc.sum(pc.equal(before, fetched["sha256"])).as_py() or 0
    num_lost = answers.num_rows - fetched.num_rows
    return (
        f"{counted(answers.num_rows, 'address', 'addresses')}: {fetched.num_rows - num_same:,} new or "
        f"changed, {num_same:,} as before, {num_lost:,} without an image"
    )


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
