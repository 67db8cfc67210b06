"""A source that grows and changes: each version is what a fresh build would be, for the price of the new."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs import job as job_module
from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.encode import block_task as encode_module
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.summaries import forecast_lines
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.samples.datasets.contents import outcomes, records, splits
from tests.samples.images.photos import jpeg, make_photos, png
from tests.samples.preparing.runs import problems, run, stopped


class Photographer:
    """Edits a source as people do: adds, removes, changes, renames, relabels, copies and touches files."""

    def __init__(self, source: Path, seed: int) -> None:
        self.source = source
        self._random = random.Random(seed)
        self._next = 1000 * (seed + 1)

    def edit(self, times: int) -> None:
        edits: list[Callable[[], None]] = [
            self.add, self.add, self.add_broken, self.change, self.remove, self.relabel, self.rename,
            self.copy, self.touch,
        ]  # fmt: skip
        for _ in range(times):
            self._random.choice(edits)()

    def _some(self) -> Path:
        return self._random.choice(sorted(path for path in self.source.rglob("*") if path.is_file()))

    def _name(self, label: str | None = None) -> Path:
        self._next += 1
        label = label or self._random.choice(["ape", "bee", "cow", f"new{self._random.randrange(2)}"])
        (self.source / label).mkdir(exist_ok=True)
        # Now and then it comes before all names that there are: then it is kept in place of its copies.
        return self.source / label / f"{self._random.choice(['', 'z'])}{self._next}.jpg"

    def add(self) -> None:
        path = self._name()
        path.write_bytes(self._random.choice([jpeg, png])(self._next))

    def add_broken(self) -> None:
        self._name().write_bytes(jpeg(self._next)[:-200])

    def change(self) -> None:
        self._next += 1
        self._some().write_bytes(jpeg(self._next))

    def remove(self) -> None:
        self._some().unlink()

    def relabel(self) -> None:
        self._some().rename(self._name())

    def rename(self) -> None:
        path = self._some()
        path.rename(self._name(path.parent.name))

    def copy(self) -> None:
        shutil.copyfile(self._some(), self._name())

    def touch(self) -> None:
        os.utime(self._some())


@contextmanager
def decoding() -> Iterator[set[str]]:
    """The ids of what is decoded meanwhile."""
    convert, ids = vars(encode_module)["convert"], set[str]()

    def convert_and_note(data: bytes, *more: Any) -> Any:
        ids.add(hashlib.sha256(data).hexdigest()[:16])
        return convert(data, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_module, "convert", convert_and_note)
        yield ids


# Further edits of further seeds are for the slow tests.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_grown_source_gives_what_a_fresh_build_gives(seed: int, tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"ape": 14, "bee": 9, "cow": 6})
    root = tmp_path / "root"
    settings = {"failure_budget": 1.0, "shards": {"shard_bytes": 6000}}
    photographer = Photographer(source, seed)
    run(source, root, **settings)
    catalog = Catalog(root)
    for version in (2, 3, 4):
        before = catalog.open("d")
        photographer.edit(6)
        with decoding() as decoded:
            grown = run(source, root, **settings)
        assert grown["version"] == version
        run(source, tmp_path / f"fresh{version}", **settings)
        after, alone = catalog.open("d"), Catalog(tmp_path / f"fresh{version}").open("d")
        assert records(after) == records(alone)
        assert outcomes(after) == outcomes(alone)
        assert after.manifest.accounting == alone.manifest.accounting
        members, now = splits(before), splits(after)
        assert {name: now[name] for name in members if name in now} == {
            name: split for name, split in members.items() if name in now
        }
        assert not decoded & members.keys(), "what is stored is not decoded again"
    assert problems(root) == []


def test_an_interrupted_run_on_a_grown_source_recovers_to_the_same_bytes(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"ape": 14, "bee": 9})
    settings = {"shards": {"shard_bytes": 6000}}
    moments = ("plan_version", "check_shards", "publish")
    unbroken = tmp_path / "unbroken"
    run(source, unbroken, **settings)
    for moment in moments:
        shutil.copytree(unbroken, tmp_path / moment)
    Photographer(source, 3).edit(8)
    run(source, unbroken, failure_budget=1.0, **settings)
    for moment in moments:
        root = tmp_path / moment
        with stopped(job_module, moment):
            run(source, root, failure_budget=1.0, **settings)
        resumed = run(source, root, failure_budget=1.0, **settings)
        assert resumed["num_encoded"] == 0 < resumed["reused"]["images"], moment
        assert resumed["inherited_shards"] > 0, moment
        assert stored(root) == stored(unbroken), moment
        assert problems(root) == [], moment


def stored(root: Path) -> dict[str, bytes]:
    """Path -> content, of all but the reports."""
    data = root / "d/data"
    files = (path for path in data.rglob("*") if path.is_file() and path.suffix != ".html")
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def test_a_damaged_shard_is_not_copied_from(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"ape": 14, "bee": 9})
    root = tmp_path / "root"
    run(source, root)
    shard = next((root / "d/data").rglob("train-*.tfrecord*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    next(source.glob("ape/*.jpg")).unlink()  # its shard, if it is the one of train, is to be copied
    done = run(source, root, seed=1)
    assert 0 < done["num_encoded"] < 22, "what lay in the damaged shard is read from the source"
    run(source, tmp_path / "fresh")
    catalog, fresh = Catalog(root), Catalog(tmp_path / "fresh")
    assert records(catalog.open("d")) == records(fresh.open("d"))
    assert verify(catalog.open("d")).problems == []


def test_a_dry_run_tells_what_is_known(tmp_path: Path) -> None:
    source, root = make_photos(tmp_path / "source", {"ape": 14, "bee": 9}), tmp_path / "root"
    request = JobRequest(source=str(source), dataset="d", root=str(root))
    assert (foreseen := dry_run(request))["num_known"] == 0
    run(source, root)
    (source / "ape/new.jpg").write_bytes(jpeg(700))
    grown = dry_run(request)
    assert (grown["num_known"], grown["num_to_read"]) == (23, 1)
    assert grown["disk_bytes"] < foreseen["disk_bytes"] / 10
    assert "23 known, 1 to read, 0 filtered" in "\n".join(forecast_lines(grown))


@pytest.mark.parametrize("ranges", [1, 3])
def test_classes_without_records_lose_their_numbers_where_asked(ranges: int, tmp_path: Path) -> None:
    """The next image takes the number that another class had: its record is written again all the same."""
    source = make_photos(tmp_path / "source", {"ape": 5, "bee": 4, "cow": 6, "dog": 5})
    root, runner = tmp_path / "root", {"processes": 1, "block_images": 8, "plan_ranges": ranges}

    def classes_of(**config: Any) -> list[str]:
        outcome = run(source, root, runner=runner, groups={"near_duplicates": False}, **config)
        return list(Catalog(root).open(f"d@{outcome['version']}").manifest.classes)

    asked = {"filter": {"drop_empty_classes": True}}
    every = classes_of()
    shutil.rmtree(source / "bee")
    assert every == ["ape", "bee", "cow", "dog"]
    assert classes_of(**asked) == every, "the version before has records of it"
    moved = min((source / "cow").iterdir())
    moved.rename(source / "dog" / f"cow-{moved.name}")
    assert classes_of() == every
    assert classes_of(**asked) == ["ape", "cow", "dog"]
    version = Catalog(root).open("d")
    assert {name for _, name, _ in records(version)} == {"ape", "cow", "dog"}
    labels = {row[3] for uri, row in outcomes(version).items() if uri.startswith("dog/")}
    assert labels == {"dog"}
    assert problems(root) == []
    assert run(source, root, runner=runner, groups={"near_duplicates": False}, **asked)["unchanged"]
    (source / "bee").mkdir()
    (source / "bee/again.jpg").write_bytes(jpeg(77))
    assert classes_of(**asked) == ["ape", "cow", "dog", "bee"]
