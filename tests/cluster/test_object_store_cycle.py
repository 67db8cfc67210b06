"""A dataset's whole life in an object store whose requests fail: it ends as on a quiet local disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.maintain.purge import purge
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.maintenance.garbage import collect_garbage
from shardmill.infra.dataset.verify import verify
from shardmill.infra.digests import sha256_hex
from shardmill.infra.storage.filesystem import Storage
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.stores.azurite import KEY, azure_location, azurite
from tests.samples.stores.faulty_proxy import ALL_FAULTS, faulty_proxy_process
from tests.samples.stores.google_store import google_location, writable_google
from tests.samples.stores.minio import minio, minio_location
from tests.samples.training.trainer import settings

SHARE_OF_FAULTS = 0.05


class Store(NamedTuple):
    """Runs a server and gives its port; names a folder of it by the port."""

    serve: Callable[[Path], AbstractContextManager[int]]
    location: Callable[[int, str], str]


STORES = {
    "minio": Store(minio, minio_location),
    "azurite": Store(azurite, azure_location),
    "google": Store(writable_google, google_location),
}


class Folders(NamedTuple):
    """The places of datasets, runs and exports."""

    root: str
    runs: str
    exports: str


@pytest.fixture(params=list(STORES))
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Store]]:
    """A store and its port."""
    store = STORES[request.param]
    folder = tmp_path / "server"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as environment, store.serve(folder) as port:
        environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        environment.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "copies"))
        yield port, store


def finished(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=900, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def prepared(source: Path, root: str) -> dict[str, Any]:
    return finished(prepare_command(source, root))  # type: ignore[arg-type]


def trained(root: str, runs: str, staging: Path) -> dict[str, Any]:
    config = settings(reading={"staging_dir": str(staging)})
    command = [sys.executable, "-m", "shardmill.training.train", "d", "--root", root, "--runs", runs]
    return finished([*command, "--config-json", json.dumps(config)])


def exported(catalog: Catalog, place: str) -> list[tuple[str, str]]:
    """Export the newest version; the name and digest of each archive."""
    export(catalog.open("d"), place, "webdataset")
    stored = Storage.at(place)
    archives = [entry.path for entry in stored.list_files() if entry.path.endswith(".tar")]
    return [(path, sha256_hex(stored.read_bytes(path))) for path in archives]


def live(source: Path, folders: Folders, staging: Path) -> list[Any]:
    """Prepare, train, grow twice, compact, purge, collect garbage; return all that must not differ."""
    catalog, told = Catalog(folders.root), []
    assert prepared(source, folders.root)["version"] == 1
    told.append(trained(folders.root, folders.runs, staging)["metrics"])
    for number in range(2):
        write(source, {f"b/new{number}.jpg": jpeg(700 + number)})
        grown = prepared(source, folders.root)
        assert (grown["version"], grown["num_encoded"]) == (number + 2, 1)
        told.append(shards_of(catalog))
    compact(catalog, "d")
    told.append(shards_of(catalog))
    told.append(exported(catalog, folders.exports))
    (source / "a/00001.jpg").unlink()
    gone = purge(catalog, "d", ["a/00001.jpg"])
    told.append([sorted(gone.rows.items()), shards_of(catalog)])
    collect_garbage(catalog, "d", keep_last=1)
    told.append([catalog.versions("d"), shards_of(catalog)])
    version = catalog.open("d")
    assert verify(version).problems == []
    named = {*version.manifest.files(), f"manifests/{version.version:06d}.json"}
    assert named <= {entry.path for entry in catalog.dataset_storage("d").list_files()}
    assert prepared(source, folders.root)["num_encoded"] == 0
    return told


def shards_of(catalog: Catalog) -> list[tuple[str, str]]:
    return [(shard.path.rpartition("/")[2], shard.sha256) for shard in catalog.open("d").manifest.shards]


def test_one_request_in_twenty_fails_and_nothing_is_lost(served: tuple[int, Store], tmp_path: Path) -> None:
    on_disk = Folders(*(str(tmp_path / name) for name in Folders._fields))
    quiet = live(make_photos(tmp_path / "one" / "photos", {"a": 18, "b": 12}), on_disk, tmp_path / "unused")
    port, store = served
    with faulty_proxy_process(port, SHARE_OF_FAULTS, ALL_FAULTS) as proxy:
        in_store = Folders(*(store.location(proxy.port, name) for name in Folders._fields))
        source = make_photos(tmp_path / "two" / "photos", {"a": 18, "b": 12})
        troubled = live(source, in_store, tmp_path / "staged")
    assert troubled == quiet
    print("injected:", proxy.injected)
    assert sum(proxy.injected.values()) > 20
