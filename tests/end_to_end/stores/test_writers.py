"""Several writers of one dataset in a bucket: no version is lost, and nothing is removed under a writer."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.lock import lock_for_adding, lock_for_removing
from shardmill.infra.dataset.maintenance.garbage import collect_garbage
from shardmill.infra.dataset.publishing import rollback
from shardmill.infra.dataset.verify import verify
from shardmill.infra.errors import LockedError
from tests.samples.images.photos import jpeg, make_photos, write
from tests.samples.preparing.command import prepare_command
from tests.samples.preparing.prepared import prepare_here, prepared_here
from tests.samples.preparing.publishers import check_publishers
from tests.samples.stores.faulty_proxy import faulty_proxy
from tests.samples.stores.object_store import KEY, SECRET, ObjectStore, serve


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serve("writers") as running:
        yield running


def root_in(store: ObjectStore, folder: str, port: int | None = None) -> str:
    """The URI of a root in the bucket, by way of a proxy's port."""
    place = f"{KEY}:{SECRET}@{store.bucket}/{folder}"
    return f"s3://{place}?endpoint_override=127.0.0.1:{port or store.port}&scheme=http&region=us-east-1"


def prepare(source: Path, root: str) -> subprocess.Popen[str]:
    argv = [*prepare_command(source, root), "--json"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def problems(root: str) -> list[str]:
    catalog = Catalog(root)
    opened = [catalog.open(f"d@{number}") for number in catalog.versions("d")]
    return [problem for version in opened for problem in verify(version).problems]


def test_two_prepares_at_once_give_two_versions(store: ObjectStore, tmp_path: Path) -> None:
    root = root_in(store, "two")
    one = make_photos(tmp_path / "one", {"a": 12, "b": 8})
    two = shutil.copytree(one, tmp_path / "two")
    write(two, {"c/other.jpg": jpeg(700), "a/00001.jpg": jpeg(701)})
    writers = [prepare(source, root) for source in (one, two)]
    ends = [writer.communicate(timeout=240) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], [errors for _, errors in ends]
    made = sorted(json.loads(out.splitlines()[-1])["version"] for out, _ in ends)
    assert made == [1, 2] == Catalog(root).versions("d")
    assert {Catalog(root).open(f"d@{number}").manifest.source for number in (1, 2)} == {str(one), str(two)}
    assert problems(root) == []
    left = [key for key in store.all_keys("two/d/spool") if not key.endswith(".lock")]
    assert left == [], "what both had in work is cleared away"


def test_removing_and_adding_exclude_each_other(store: ObjectStore, tmp_path: Path) -> None:
    root = root_in(store, "locks")
    source = make_photos(tmp_path / "source", {"a": 6, "b": 5})
    for number in range(2):
        write(source, {f"a/new-{number}.jpg": jpeg(700 + number)})
        prepared_here(source, root)
    catalog = Catalog(root)
    storage = catalog.dataset_storage("d")
    with lock_for_removing(storage, "d"):
        with pytest.raises(LockedError, match="removing parts of d"):
            rollback(catalog, "d@1")
        write(source, {"a/newest.jpg": jpeg(720)})
        late = prepare_here(source, root)
        assert late.returncode == 4
        assert "is busy with removing parts of d" in late.stderr
    with lock_for_adding(storage, "d"):
        with pytest.raises(LockedError, match="making or removing a version of d"):
            collect_garbage(catalog, "d", keep_last=1)
        assert rollback(catalog, "d@1").version == 3
    assert collect_garbage(catalog, "d", keep_last=2).dropped == [1]
    assert catalog.versions("d") == [2, 3]
    assert problems(root) == []


@pytest.mark.slow
def test_runs_survive_faults_of_one_request_in_twenty(store: ObjectStore, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 120, "b": 80})
    with faulty_proxy(store.port) as proxy:
        proxy.share = 0.05
        for number in range(6):
            writer = prepare(source, root_in(store, f"faults-{number}", proxy.port))
            _, errors = writer.communicate(timeout=240)
            assert writer.returncode == 0, errors
    assert sum(proxy.injected.values()) > 30
    assert problems(root_in(store, "faults-0")) == []


@pytest.mark.slow
@pytest.mark.parametrize("share_lost", [0.0, 0.2], ids=["", "answers lost"])
def test_versions_published_at_the_same_moments_are_all_kept(
    store: ObjectStore, share_lost: float, tmp_path: Path
) -> None:
    with faulty_proxy(store.port) as proxy:
        proxy.share, proxy.kinds, proxy.methods = share_lost, ("lost",), frozenset({"PUT", "POST"})
        check_publishers(root_in(store, f"publishers-{share_lost}", proxy.port), tmp_path)
    assert bool(proxy.injected) == bool(share_lost)
