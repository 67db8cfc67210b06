"""Datasets that are prepared, read and maintained in ``gs://``, where fake-gcs-server is installed.

That server has conditional writes in its JSON interface alone; ``tests.samples.stores.google_xml`` translates
for the tests that write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.errors import StorageError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg
from tests.samples.preparing.publishers import check_publishers
from tests.samples.stores.google_store import fake_google, google_location
from tests.samples.stores.google_xml import xml_interface
from tests.samples.stores.odd_keys import check_odd_keys
from tests.samples.stores.stored_life import (
    check_life,
    check_locks,
    check_missing_bucket,
    check_races,
    check_two_prepares,
    prepare,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with fake_google(tmp_path_factory.mktemp("gcs")) as running:
        yield running


@pytest.fixture(scope="module")
def xml(port: int) -> Iterator[int]:
    """The port of a server with conditional writes in both interfaces."""
    with xml_interface(port) as own:
        yield own


def test_versions_are_prepared_from_the_store_and_read_in_it(port: int, tmp_path: Path) -> None:
    source, root = google_location(port, "photos"), tmp_path / "root"
    files = Storage.at(source)
    for number in range(24):
        files.write_atomic(f"{'ab'[number % 2]}/{number}.jpg", jpeg(number))
    assert prepare(source, str(root))["num_records"] == 24
    assert prepare(source, str(root))["unchanged"]
    files.write_atomic("a/new.jpg", jpeg(99))
    grown = prepare(source, str(root))
    assert (grown["version"], grown["num_encoded"]) == (2, 1)
    copy = Storage.at(google_location(port, "datasets/d"))
    for path in (root / "d").rglob("*"):
        if path.is_file():
            copy.write_atomic(str(path.relative_to(root / "d")), path.read_bytes())
    assert verify(Catalog(google_location(port, "datasets")).open("d")).problems == []
    wanted = open_dataset("d", root=root).batches("train", batch_size=4, image_size=16, last_batch="pad")
    for staging in (None, tmp_path / "staged"):
        dataset = open_dataset("d", root=google_location(port, "datasets"), staging_dir=staging)
        batches = dataset.batches("train", batch_size=4, image_size=16, last_batch="pad")
        for batch, same in zip(batches, wanted, strict=True):
            assert np.array_equal(batch.images, same.images)
        dataset.close()


def test_each_key_is_read_or_costs_its_row(port: int) -> None:
    def put(key: str, data: bytes) -> None:
        upload = f"/upload/storage/v1/b/bucket/o?uploadType=media&name={quote(key, safe='')}"
        urlopen(Request(f"http://127.0.0.1:{port}{upload}", data, method="POST")).close()

    check_odd_keys(google_location(port, "odd"), put)


def test_a_dataset_lives_in_the_store_as_on_a_disk(xml: int, tmp_path: Path) -> None:
    check_life(google_location(xml, "life"), tmp_path)


def test_two_prepares_at_once_give_two_versions(xml: int, tmp_path: Path) -> None:
    check_two_prepares(google_location(xml, "two"), tmp_path)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_one_of_two_writers_wins_each_race(xml: int, processes: bool) -> None:
    check_races(google_location(xml, f"races-{processes}"), processes=processes)


def test_versions_published_at_the_same_moments_are_all_kept(xml: int, tmp_path: Path) -> None:
    check_publishers(google_location(xml, "publishers"), tmp_path)


def test_locks_exclude_each_other(xml: int) -> None:
    check_locks(google_location(xml, "locks"))


def test_a_bucket_that_is_not_there_is_named(xml: int) -> None:
    check_missing_bucket(google_location(xml, "nothing"))


def test_a_store_without_generation_matches_is_refused_for_writing(port: int) -> None:
    """This server does not know the conditional requests of the XML interface, which obstore makes."""
    with pytest.raises(StorageError, match="does not support conditional writes"):
        prepare(google_location(port, "photos"), google_location(port, "written"))
