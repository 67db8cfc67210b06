"""Images that are members of containers: listing, digests, references, and containers that change."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.encode.blocks import REFERENCES_FILE, block_digest, cut_blocks, write_references
from shardmill.beam_jobs.schemas import (
    LISTING_SCHEMA,
    MEMBER_LISTING_SCHEMA,
    FileRef,
    Status,
    file_refs,
    reference_schema,
)
from shardmill.beam_jobs.sources.files.containers import Containers
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.listing import Listing, read_listing, write_listing
from shardmill.infra.storage.filesystem import Storage

FILES: list[dict[str, Any]] = [
    {"uri": "a/1.jpg", "size_bytes": 10, "mtime_ns": 5, "label": "a", "status": Status.TO_READ},
    {
        "uri": "b/2.jpg", "size_bytes": 11, "mtime_ns": 6, "label": "b", "split": "test", "group": "g",
        "status": Status.TO_READ,
    },
    {
        "uri": "x.txt", "size_bytes": 1, "mtime_ns": 7, "status": Status.FILTERED, "reason": "ignored",
        "message": "m",
    },
]  # fmt: skip
MEMBERS = [
    row | {"container": f"{number % 2}.tar", "position": 512 * number} for number, row in enumerate(FILES)
]


def test_the_digests_of_plain_files_are_those_of_earlier_releases() -> None:
    listing = Listing(pa.Table.from_pylist(FILES, LISTING_SCHEMA))
    assert listing.digest() == "8d7db73616ae1c1ef5bb812f344840f6379fd02a00ffa98eaddff70876f8e994"
    references = listing.to_read()
    assert block_digest(references) == "7d3c4bc4f2320b63e383ce50"
    assert reference_schema(references).names == ["uri", "size_bytes", "mtime_ns", "label", "split", "group"]


def test_containers_and_positions_are_part_of_the_digests() -> None:
    def digests(change: dict[str, Any], chunked: bool = False) -> tuple[str, str]:
        rows = [MEMBERS[0] | change, *MEMBERS[1:]]
        table = pa.Table.from_pylist(rows, MEMBER_LISTING_SCHEMA)
        if chunked:  # each chunk has a dictionary of its own
            table = pa.concat_tables([pa.Table.from_pylist([row], MEMBER_LISTING_SCHEMA) for row in rows])
        return Listing(table).digest(), block_digest(Listing(table).to_read())

    assert digests({}) == digests({}, chunked=True)
    found = [digests({}), digests({"container": "1.tar"}), digests({"position": 1})]
    assert len({listing for listing, _ in found}) == len({block for _, block in found}) == 3


def test_members_survive_the_spool(tmp_path: Path) -> None:
    spool = Storage.at(tmp_path)
    table = pa.Table.from_pylist(MEMBERS, MEMBER_LISTING_SCHEMA)
    write_listing(spool, table)
    references = read_listing(spool).to_read()
    write_references(spool, references, cut_blocks(references, 1))
    with spool.open_input(REFERENCES_FILE) as stream, pa.ipc.open_file(stream) as reader:
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    found = [file for batch in batches for file in file_refs(batch)]
    assert found == [FileRef("a/1.jpg", 10, 5, "0.tar", 0), FileRef("b/2.jpg", 11, 6, "1.tar", 512)]


def test_a_container_is_read_in_parts_and_watched(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    path.write_bytes(bytes(range(200)))
    folder = SourceFolder(str(tmp_path))
    mtime_ns = path.stat().st_mtime_ns
    file = FileRef("c.bin#1", 5, mtime_ns, "c.bin", 10)
    containers: Containers = pickle.loads(pickle.dumps(Containers(folder)))
    assert containers.of(file).read_at(5, 10) == bytes(range(10, 15))
    assert containers.of(file).read_at(50, 190) == bytes(range(190, 200)), "only what is there"
    assert containers.of(file) is containers.of(file)
    stream = io.BufferedReader(folder.open_container("c.bin"))
    stream.seek(-3, os.SEEK_END)
    assert stream.read() == bytes(range(197, 200))
    os.utime(path, ns=(5, 5))
    with pytest.raises(SourceFault, match="has changed") as changed:
        containers.of(file)
    assert changed.value.reason == "changed"
    path.unlink()
    for uri in ("c.bin", "never.bin"):
        with pytest.raises(SourceFault) as gone:
            Containers(folder).of(FileRef(f"{uri}#1", 5, mtime_ns, uri, 10))
        assert gone.value.reason == "vanished"
    os.mkfifo(path)
    with pytest.raises(SourceFault, match="not a file"):
        folder.open_container("c.bin")


def test_few_containers_stay_open(tmp_path: Path) -> None:
    containers = Containers(SourceFolder(str(tmp_path)))
    opened = []
    for number in range(20):
        (tmp_path / f"{number}").write_bytes(b"x")
        mtime_ns = (tmp_path / f"{number}").stat().st_mtime_ns
        opened.append(containers.of(FileRef(f"{number}#", 1, mtime_ns, f"{number}", 0)))
    assert [container.closed for container in opened] == [True] * 4 + [False] * 16
