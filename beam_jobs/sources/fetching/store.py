"""Store fetched answers and bytes in the spool of the run, and the answers of earlier runs in the dataset.

In the spool, ``fetched/answers/<number>.arrow`` hold answers (ANSWERS_SCHEMA) in the order in which they
came, and ``fetched/bytes/<xx>/<digest of the URI>`` the bytes. Both go with the spool when the version is
published. The folder of the dataset keeps one file of answers for each source, so that the next run does
not fetch unchanged images again.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, BinaryIO, Self

import pyarrow as pa

from shardmill.infra.digests import digest_of
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.filesystem import Storage

if TYPE_CHECKING:
    from shardmill.beam_jobs.sources.fetching.client import Received

ANSWERS_SCHEMA = pa.schema(
    [
        ("uri", pa.string()),  # the address, without credentials
        ("size_bytes", pa.int64()),  # of the image; 0 if there is none
        ("sha256", pa.binary(32)),  # of the image; null if there is none
        ("etag", pa.string()),  # as the server gave it
        ("last_modified", pa.string()),  # as the server gave it
        ("final_uri", pa.string()),  # the address that sent the image, behind all redirects
        ("reason", pa.string()),  # why there is no image; null if there is one
        ("message", pa.string()),  # the reason in a sentence
    ]
)

_ANSWERS, _BYTES = "fetched/answers", "fetched/bytes"
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of ANSWERS_SCHEMA."""

    uri: str
    size_bytes: int
    sha256: bytes | None
    etag: str | None
    last_modified: str | None
    final_uri: str | None
    reason: str | None
    message: str | None

    @classmethod
    def of_bytes(cls, uri: str, received: Received, final_uri: str) -> Self:
        """Return the answer of an address that gave an image."""
        validators = received.validators
        return cls(
            uri, received.size_bytes, received.sha256, validators.etag, validators.last_modified, final_uri,
            None, None,
        )  # fmt: skip

    @classmethod
    def of_fault(cls, uri: str, reason: str, message: str) -> Self:
        """Return the answer of an address that gave none."""
        return cls(uri, 0, None, None, None, None, reason, message)


def table_of(answers: Sequence[Answer]) -> pa.Table:
    """Return answers as a table: ANSWERS_SCHEMA."""
    columns = list(zip(*map(astuple, answers), strict=True)) or [()] * len(ANSWERS_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ANSWERS_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ANSWERS_SCHEMA)


def content_tag(sha256: bytes) -> int:
    """Return 63 bits of a digest: they stand where a file has its time of change.

    Times that servers give cannot be relied on; bytes that differ have other digests.
    """
    return int.from_bytes(sha256[:8], "big") >> 1


class RunStore:
    """Answers and bytes of one run.

    Args:
        spool: folder of unfinished work of the run.
    """

    def __init__(self, spool: Storage) -> None:
        self._spool = spool

    def add_answers(self, answers: Sequence[Answer]) -> None:
        """Store answers behind those that are there."""
        number = 1 + max((int(name) for name in map(_stem, self._answer_files())), default=0)
        with (
            self._spool.atomic_writer(f"{_ANSWERS}/{number:06d}.arrow") as stream,
            pa.ipc.new_file(stream, ANSWERS_SCHEMA) as writer,
        ):
            writer.write_table(table_of(answers))

    def answers(self) -> pa.Table:
        """Read all answers: ANSWERS_SCHEMA, in the order in which they came; a later one counts."""
        parts = [ANSWERS_SCHEMA.empty_table()]
        for path in self._answer_files():
            with self._spool.open_input(path) as stream, pa.ipc.open_file(stream) as reader:
                parts.append(reader.read_all())
        return pa.concat_tables(parts).combine_chunks()

    def _answer_files(self) -> list[str]:
        return [entry.path for entry in self._spool.list_files(_ANSWERS, recursive=False)]

    def put(self, uri: str, content: BinaryIO) -> None:
        """Store the bytes of an address, from the beginning of ``content``."""
        content.seek(0)
        with self._spool.atomic_writer(_bytes_file(uri)) as stream:
            shutil.copyfileobj(content, stream, _COPY_BYTES)

    def get(self, uri: str) -> bytes:
        """Read the bytes of an address.

        Raises:
            NotFoundError: they are not there.
        """
        return self._spool.read_bytes(_bytes_file(uri))

    def without_bytes(self, uris: Sequence[str]) -> list[str]:
        """Return the addresses whose bytes are not there."""
        there = {entry.path for entry in self._spool.list_files(_BYTES)}
        return [uri for uri in uris if _bytes_file(uri) not in there]


def _bytes_file(uri: str) -> str:
    digest = digest_of(uri, length=32)
    return f"{_BYTES}/{digest[:2]}/{digest}"


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".arrow")


class KeptAnswers:
    """The answers that the runs before got from one source.

    Args:
        dataset: folder of the dataset.
        source: names the source, and the table in it.
    """

    def __init__(self, dataset: Storage, source: str) -> None:
        self._dataset = dataset
        self._path = f"fetched/{digest_of(source, length=16)}.arrow"

    def read(self) -> pa.Table:
        """Read the answers: ANSWERS_SCHEMA; empty if there are none, or those of another release."""
        try:
            with self._dataset.open_input(self._path) as stream, pa.ipc.open_file(stream) as reader:
                found = reader.read_all()
        except (NotFoundError, pa.ArrowInvalid):
            return ANSWERS_SCHEMA.empty_table()
        return found if found.schema == ANSWERS_SCHEMA else ANSWERS_SCHEMA.empty_table()

    def write(self, answers: pa.Table) -> None:
        """Replace the answers."""
        with (
            self._dataset.atomic_writer(self._path) as stream,
            pa.ipc.new_file(stream, ANSWERS_SCHEMA) as writer,
        ):
            writer.write_table(answers)
