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

from beam_jobs import encode as encode_module
from infra.catalog import Catalog
from tests.samples.contents import outcomes, records, splits
from tests.samples.photos import jpeg, make_photos, png
from tests.samples.runs import problems, run


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
    convert, ids = encode_module.convert, set()

    def convert_and_note(data: bytes, *more: Any) -> Any:
        ids.add(hashlib.sha256(data).hexdigest()[:16])
        return convert(data, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_module, "convert", convert_and_note)
        yield ids


@pytest.mark.parametrize("seed", range(5))
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
