"""The listing of a table of addresses, before and after they are fetched, and reading of what was fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import sources
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import FileRef, Status, file_refs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Workplace
from shardmill.beam_jobs.sources.kinds.urls import list_fetched, list_inputs, make_readable, open_reader
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg
from tests.samples.sources.columns import with_columns
from tests.samples.sources.image_server import ImageServer, image, running_server, status, versioned


@pytest.fixture
def server() -> Iterator[ImageServer]:
    with running_server() as server:
        yield server


def configured(**table: Any) -> PrepareConfig:
    urls = {"allow_private_hosts": True, "retries": 0, "read_seconds": 5}
    source = {
        "kind": "urls",
        **with_columns("table", {"file": "t.csv", "image": "url", **table}),
        "urls": urls,
    }
    return PrepareConfig.model_validate({"source": source})


def written(folder: Path, *lines: str) -> SourceFolder:
    (folder / "t.csv").write_text("\n".join(["url,label", *lines]))
    return SourceFolder(str(folder))


def workplace(folder: Path, run: str = "run") -> Workplace:
    return Workplace(Storage.at(folder / "dataset" / "spool" / run), Storage.at(folder / "dataset"))


def outcomes(listing: Listing) -> dict[str, tuple[str | None, int, str | None]]:
    return {row["uri"]: (row["label"], row["status"], row["reason"]) for row in listing.table.to_pylist()}


READ, FILTERED, LOST = Status.TO_READ, Status.FILTERED, Status.QUARANTINED


def test_fetched_images_have_no_age(server: ImageServer, tmp_path: Path) -> None:
    urls = [server.give(f"/{number}.jpg", image(jpeg(number))) for number in range(6)]
    source = written(tmp_path, *(f"{url},cat" for url in urls))
    config = configured()
    config = config.model_copy(update={"source": config.source.model_copy(update={"min_age_seconds": 60.0})})
    listing = sources.list_inputs(source, config, workplace(tmp_path))
    assert [row[1] for uri, row in outcomes(listing).items() if uri in urls] == [READ] * 6


def test_every_row_is_listed_without_being_fetched(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        "http://h.invalid/a.jpg,cat",
        "HTTP://H.invalid:80/a.jpg#top,cat",
        "http://h.invalid/b.jpg,dog",
        "http://h.invalid/b.jpg,cat",
        "http://h.invalid/c.jpg,",
        "http://h.invalid/d.jpg,skip",
        "http://user:secret@h.invalid/e.jpg,cat",
        "e.jpg,cat",
        ",cat",
        "https://h.invalid/g.jpg?id=1&token=secret,cat",
    )
    listing = list_inputs(source, configured(drop_labels=["skip"]))
    assert outcomes(listing) == {
        "http://h.invalid/a.jpg": ("cat", READ, None),
        "http://h.invalid/b.jpg": ("dog", LOST, "contradicting_rows"),
        "http://h.invalid/c.jpg": (None, LOST, "no_label"),
        "http://h.invalid/d.jpg": ("skip", FILTERED, "dropped_label"),
        "https://h.invalid/g.jpg?id=1": ("cat", READ, None),
        "t.csv#row=2": ("cat", FILTERED, "repeated_row"),
        "t.csv#row=4": ("cat", LOST, "contradicting_rows"),
        "t.csv#row=7": ("cat", LOST, "broken_row"),
        "t.csv#row=8": ("cat", LOST, "broken_row"),
        "t.csv#row=9": ("cat", LOST, "bad_path"),
    }
    assert "secret" not in str(listing.table.to_pylist())
    assert any("source.urls.contact" in warning for warning in listing.warnings)


def test_a_prefix_stands_before_what_is_no_address(tmp_path: Path) -> None:
    source = written(tmp_path, "a.jpg,cat", "http://other.invalid/b.jpg,cat")
    listing = list_inputs(source, configured(prefix="https://h.invalid/full/"))
    assert listing.table["uri"].to_pylist() == ["http://other.invalid/b.jpg", "https://h.invalid/full/a.jpg"]


def test_a_table_without_addresses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="holds an address") as caught:
        list_inputs(written(tmp_path, "a.jpg,cat"), configured())
    assert "image" in str(caught.value.remedy)


def test_only_images_that_are_to_be_read_are_fetched(server: ImageServer, tmp_path: Path) -> None:
    good, gone = server.give("/good", image(jpeg(1))), server.give("/gone", status(404))
    reserved = server.give("/reserved", image(jpeg(2), X_Robots_Tag="noai"))
    skipped = server.give("/skipped", image(jpeg(3)))
    source = written(
        tmp_path, f"{good},cat", f"{good},cat", f"{gone},cat", f"{reserved},cat", f"{skipped},skip", "x,cat"
    )
    config, place = configured(drop_labels=["skip"]), workplace(tmp_path)
    listing = list_fetched(source, config, place)
    assert outcomes(listing) == {
        good: ("cat", READ, None),
        gone: ("cat", LOST, "not_found"),
        reserved: ("cat", FILTERED, "opted_out"),
        skipped: ("skip", FILTERED, "dropped_label"),
        "t.csv#row=2": ("cat", FILTERED, "repeated_row"),
        "t.csv#row=6": ("cat", LOST, "broken_row"),
    }
    assert server.counts() == {"/good": 1, "/gone": 1, "/reserved": 1}
    (file,) = file_refs(listing.to_read())
    assert file.size_bytes == len(jpeg(1))
    assert open_reader(source, config, place.spool).read(file) == jpeg(1)


def test_the_listing_does_not_depend_on_the_order_of_rows_or_on_the_run(
    server: ImageServer, tmp_path: Path
) -> None:
    urls = [server.give(f"/{number}", versioned(jpeg(number), f'"{number}"')) for number in range(3)]
    first = list_fetched(
        written(tmp_path, *(f"{url},cat" for url in urls)), configured(), workplace(tmp_path)
    )
    later = list_fetched(
        written(tmp_path, *(f"{url},cat" for url in urls[::-1])), configured(), workplace(tmp_path, "later")
    )
    assert first.digest() == later.digest()


def test_bytes_that_are_not_kept_are_fetched_again_where_they_are_read(
    server: ImageServer, tmp_path: Path
) -> None:
    same = server.give("/same", versioned(jpeg(1), '"1"'))
    changing = server.give(
        "/changing", versioned(jpeg(2), '"2"'), versioned(jpeg(2), '"2"'), versioned(jpeg(3), '"3"')
    )
    gone = server.give("/gone", versioned(jpeg(4), '"4"'), versioned(jpeg(4), '"4"'), status(404))
    source, config = written(tmp_path, f"{same},cat", f"{changing},cat", f"{gone},cat"), configured()
    list_fetched(source, config, workplace(tmp_path))
    server.forget()
    place = workplace(tmp_path, "later")
    listing = list_fetched(source, config, place)
    assert all("if-none-match" in headers for _, headers in server.asked)
    make_readable(source, config, listing.to_read(), place.spool)
    reader = open_reader(source, config, place.spool)
    found: dict[str, object] = {}
    for file in file_refs(listing.to_read()):
        try:
            found[file.uri] = reader.read(file)
        except SourceFault as fault:
            found[file.uri] = fault.reason
    assert found == {same: jpeg(1), changing: "changed", gone: "vanished"}
    assert len(server.asked) == 6
    make_readable(source, config, listing.to_read(), place.spool)
    assert len(server.asked) == 7  # only what is still missing


def test_nothing_can_be_read_outside_of_a_run(tmp_path: Path) -> None:
    reader = open_reader(SourceFolder(str(tmp_path)), configured(), None)
    with pytest.raises(SourceFault) as caught:
        reader.read(FileRef("http://h.invalid/a.jpg", 3, 4))
    assert caught.value.reason == "unreadable"


def test_what_was_known_is_not_forgotten_where_a_server_fails_for_a_while(
    server: ImageServer, tmp_path: Path
) -> None:
    url = server.give("/a", versioned(jpeg(1), '"1"'), status(500), versioned(jpeg(1), '"1"'))
    source = written(tmp_path, f"{url},cat")
    reasons = []
    for run in range(3):
        listing = list_fetched(source, configured(), workplace(tmp_path, str(run)))
        reasons += listing.table["reason"].to_pylist()
    assert reasons == [None, "server_error", None]
    assert [headers.get("if-none-match") for _, headers in server.asked] == [None, '"1"', '"1"']
