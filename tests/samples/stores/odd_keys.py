"""Keys of objects that no file has, or that clients take for others: some are read, others refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.reasons import BAD_NAME
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder

READ = (
    "cat/1.jpg",
    "dog/ blank .jpg",
    " lead/x.jpg",
    "dog/%41.jpg",
    "dog/a%2Fb.jpg",
    "dog/q?x.jpg",
    "dog/h#x.jpg",
    "dog/p+x.jpg",
    "dog/caf\u00e9.jpg",
    "dog/cafe\u0301.jpg",
    "dog/t\tab.jpg",
    "dog/new\nline.jpg",
    "dog/c\x01.jpg",
    "dog/a&b=c;d.jpg",
    "dog/\u202e.jpg",
    "dog/\U0001f600.jpg",
    "dog/~a.jpg",
    "dog/'q\".jpg",
    "dog/*.jpg",
    "dog/[a].jpg",
    "dog/<x>.jpg",
    "dog/a...jpg",
    "dog/deep",
    "dog/deep/in.jpg",
    "dog/" + "d" * (1024 - len("odd/dog/")),
)
REFUSED = ("train//dog/8.jpg", "/9.jpg", "dog/./a.jpg", "dog/../b.jpg", "dog/.")
MARKERS = ("empty/", "dog/empty/")  # without content, as consoles of stores make for folders


def check_odd_keys(
    location: str,
    put: Callable[[str, bytes], None],
    left_out: tuple[str, ...] = (),
) -> None:
    """Check that each object is read as it is, or costs its own row and no more.

    Args:
        location: of the folder ``odd`` of the bucket.
        put: writes an object.
        left_out: keys that the store or its server cannot hold.
    """
    here = {key: f"content of {key}".encode() for key in (*READ, *REFUSED) if key not in left_out}
    for key, data in (here | dict.fromkeys(MARKERS, b"")).items():
        put(f"odd/{key}", data)
    folder, config = SourceFolder(location), PrepareConfig()
    listing = list_inputs(folder, config)
    rows: list[dict[str, Any]] = listing.table.to_pylist()
    reader = open_reader(folder, config)
    found = {file.uri: reader.read(file) for file in file_refs(listing.to_read())}
    assert found == {key: here[key] for key in READ if key in here}
    lost = {row["uri"]: row["reason"] for row in rows if row["uri"] not in found}
    assert set(lost.values()) == {BAD_NAME}
    assert len(lost) == len(here) - len(found), sorted(lost)
    assert {row["label"] for row in rows if row["reason"] is None} == {"cat", "dog", " lead"}
