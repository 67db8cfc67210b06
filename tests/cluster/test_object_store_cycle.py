"""A dataset's whole life in an object store whose requests fail: it ends as on a quiet local disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.maintain.compaction import compact
from beam_jobs.maintain.purge.working import purge
from infra.dataset.catalog import Catalog
from infra.dataset.maintenance.garbage import collect_garbage
from infra.dataset.verify import verify
from tests.samples.azurite import KEY, azure_location, azurite
from tests.samples.command import prepare_command
from tests.samples.faulty_proxy import ALL_FAULTS, FaultyProxy, faulty_proxy
from tests.samples.minio import minio, minio_location
from tests.samples.photos import jpeg, make_photos, write
from tests.samples.trainer import settings

SHARE_OF_FAULTS = 0.05


@dataclass
class Disturbed:
    """A proxy that injects faults before a store, and the roots of the folders behind it."""

    proxy: FaultyProxy
    root: str
    runs: str


@pytest.fixture(params=["minio", "azurite"])
def disturbed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disturbed]:
    folder = tmp_path / "server"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        environment.setenv("SHARDMILL_RUNS_COPY", str(tmp_path / "copies"))
        server, place = (minio, minio_location) if request.param == "minio" else (azurite, azure_location)
        with server(folder) as port, faulty_proxy(port) as proxy:
            proxy.share, proxy.kinds = SHARE_OF_FAULTS, ALL_FAULTS
            yield Disturbed(proxy, place(proxy.port, "sets"), place(proxy.port, "runs"))


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
    command = [sys.executable, "-m", "training.train", "d", "--root", root, "--runs", runs]
    return finished([*command, "--config-json", json.dumps(config)])


def live(source: Path, root: str, runs: str, staging: Path) -> list[Any]:
    """Prepare, train, grow twice, compact, purge, collect garbage; return all that must not differ."""
    catalog, told = Catalog(root), []
    assert prepared(source, root)["version"] == 1
    told.append(trained(root, runs, staging)["metrics"])
    for number in range(2):
        write(source, {f"b/new{number}.jpg": jpeg(700 + number)})
        grown = prepared(source, root)
        assert (grown["version"], grown["num_encoded"]) == (number + 2, 1)
        told.append(shards_of(catalog))
    compact(catalog, "d")
    told.append(shards_of(catalog))
    (source / "a/00001.jpg").unlink()
    gone = purge(catalog, "d", ["a/00001.jpg"])
    told.append([sorted(gone.rows.items()), shards_of(catalog)])
    collect_garbage(catalog, "d", keep_last=1)
    told.append([catalog.versions("d"), shards_of(catalog)])
    version = catalog.open("d")
    assert verify(version).problems == []
    named = {*version.manifest.files(), f"manifests/{version.version:06d}.json"}
    assert named <= {entry.path for entry in catalog.dataset_storage("d").list_files()}
    assert prepared(source, root)["num_encoded"] == 0
    return told


def shards_of(catalog: Catalog) -> list[tuple[str, str]]:
    return [(shard.path.rpartition("/")[2], shard.sha256) for shard in catalog.open("d").manifest.shards]


def test_one_request_in_twenty_fails_and_nothing_is_lost(disturbed: Disturbed, tmp_path: Path) -> None:
    quiet = live(
        make_photos(tmp_path / "one" / "photos", {"a": 18, "b": 12}),
        str(tmp_path / "root"),
        str(tmp_path / "runs"),
        tmp_path / "unused",
    )
    troubled = live(
        make_photos(tmp_path / "two" / "photos", {"a": 18, "b": 12}),
        disturbed.root,
        disturbed.runs,
        tmp_path / "staged",
    )
    assert troubled == quiet
    print("injected:", dict(disturbed.proxy.injected))
    assert sum(disturbed.proxy.injected.values()) > 20
