"""A table of photographs as people keep them: bare ids, labels that are none, rows without files, copies.

The same folder and seed give the same table.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NO_CLASSES = ("Not sure", "Skip")
_NUM_ROWS = 5000
_COUNTS = {
    "not sure": 300, "skip": 250, "no label": 60, "copy": 150, "copy of another class": 40,
    "contradicted": 50, "nameless": 30, "missing": 120, "outside": 20, "broken": 15,
}  # fmt: skip


@dataclass(frozen=True)
class Untidy:
    """A table and what it is made of.

    Attributes:
        table: ``images.csv``; its columns are image (an id without ending), sender, label and kids.
        outcomes: the number of inputs by reason, or by outcome if it has no reason.
        num_conflicts: how many different images appear under two labels.
        classes: sorted.
    """

    table: Path
    outcomes: dict[str, int]
    num_conflicts: int
    classes: list[str]


def make_untidy(photographs: Path, folder: Path, seed: int = 7) -> Untidy:
    """Copy photographs ``<split>/<class>/*.jpg`` into ``folder/images``, and write a table of 5,000 rows.

    Args:
        photographs: at least 2,000, all of them different.
        folder: is made.
        seed: of names, choices and the order of the rows.
    """
    chance = random.Random(seed)
    names = _Names(chance)
    (folder / "images").mkdir(parents=True)
    found = [(path, path.parent.name) for path in sorted(photographs.glob("*/*/*.jpg"))]
    chance.shuffle(found)
    rows: list[list[str]] = []
    labelled: list[tuple[Path, str, int]] = []  # photograph, label, number of its row
    special = _special(found)
    for path, label in found:
        name, kind = next(names), next(special)
        _copy(path, folder, name)
        if kind == "nameless":
            continue
        said = {"not sure": NO_CLASSES[0], "skip": NO_CLASSES[1], "no label": ""}.get(kind, label)
        rows.append([name, said])
        if kind == "":
            labelled.append((path, label, len(rows) - 1))
    classes = sorted({label for _, label in found})
    chosen = iter(
        chance.sample(
            labelled, sum(_COUNTS[kind] for kind in ("copy", "copy of another class", "contradicted"))
        )
    )
    for kind in ("copy", "copy of another class"):
        for _ in range(_COUNTS[kind]):
            path, label, _ = next(chosen)
            name = next(names)
            _copy(path, folder, name)
            rows.append([name, label if kind == "copy" else _other(label, classes)])
    contradicted = [next(chosen) for _ in range(_COUNTS["contradicted"])]
    rows += [[rows[at][0], _other(label, classes)] for _, label, at in contradicted]
    rows += [[next(names), chance.choice(classes)] for _ in range(_COUNTS["missing"])]
    rows += [[f"../{next(names)}", chance.choice(classes)] for _ in range(_COUNTS["outside"])]
    lines = [
        [name, f"sender{chance.randrange(80)}", label, chance.choice(("True", "False"))]
        for name, label in rows
    ]
    lines += [[next(names), "sender1", chance.choice(classes)] for _ in range(_COUNTS["broken"])]
    whole = {at for _, _, at in labelled} - {at for _, _, at in contradicted}
    repeated = chance.sample(sorted(whole), _NUM_ROWS - len(lines))
    lines += [lines[at] for at in repeated]
    chance.shuffle(lines)
    table = folder / "images.csv"
    with table.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["image", "sender", "label", "kids"], *lines])
    return Untidy(table, _outcomes(len(labelled), len(repeated)), _COUNTS["copy of another class"], classes)


def _outcomes(num_labelled: int, num_repeated: int) -> dict[str, int]:
    """Return the outcomes that such a table has."""
    contradicted = _COUNTS["contradicted"]
    return {
        "record": num_labelled - contradicted,
        "same_bytes": _COUNTS["copy"] + _COUNTS["copy of another class"],
        "dropped_label": _COUNTS["not sure"] + _COUNTS["skip"],
        "no_label": _COUNTS["no label"],
        "contradicting_rows": 2 * contradicted,  # the file, and the later row
        "repeated_row": num_repeated,
        "missing_file": _COUNTS["missing"],
        "bad_path": _COUNTS["outside"],
        "broken_row": _COUNTS["broken"],
        "not_in_table": _COUNTS["nameless"],
        "table": 1,
    }


def _special(found: list[tuple[Path, str]]) -> Iterator[str]:
    """Yield the kind of each photograph; "" for one with a label."""
    kinds = Counter({kind: _COUNTS[kind] for kind in ("not sure", "skip", "no label", "nameless")})
    yield from kinds.elements()
    yield from [""] * (len(found) - kinds.total())


def _other(label: str, classes: list[str]) -> str:
    return classes[(classes.index(label) + 1) % len(classes)]


class _Names:
    """Yields names that no other file or row has, in no order."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._taken = chance, set[str]()

    def __iter__(self) -> _Names:
        return self

    def __next__(self) -> str:
        while (name := f"{self._chance.getrandbits(64):016x}") in self._taken:
            pass
        self._taken.add(name)
        return name


def _copy(path: Path, folder: Path, name: str) -> None:
    (folder / "images" / f"{name}.jpg").write_bytes(path.read_bytes())
