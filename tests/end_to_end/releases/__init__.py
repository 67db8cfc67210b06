"""Small datasets as releases of Shardmill wrote them, kept as plain files, for tests of later releases.

::

    <release>/
      photos/                   the source: drawn images in two folders, one of them twice, and a broken file
      tags.csv                  several labels for each image
      datasets/classes/         prepared from the folders: format version 2
      datasets/tags/            prepared from the table: format version 3

``python -m tests.end_to_end.releases`` writes the folder of the present release.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE, TABLE, DATASETS = "photos", "tags.csv", "datasets"
NAMES = ("classes", "tags")


def releases() -> list[Path]:
    """The folders of all releases."""
    return sorted(path.parent for path in FOLDER.glob(f"*/{DATASETS}"))


def settings(name: str, table: Path) -> dict[str, object]:
    """The settings that a dataset is prepared with; ``table`` has the labels of "tags"."""
    common: dict[str, object] = {
        "image": {"size": 16, "quality": 75},
        "shards": {"num_shards": 1},
        "groups": {"near_duplicates": False},
        "failure_budget": 0.5,
    }
    if name == "classes":
        return common
    columns = {"label": "tags", "label_separator": ";"}
    return common | {"source": {"kind": "table", "table": {"file": str(table)}, "columns": columns}}
