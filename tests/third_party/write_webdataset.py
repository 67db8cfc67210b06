"""Writes a dataset with WebDataset itself; run in its environment.

python write_webdataset.py FOLDER: writes FOLDER/shards, and pickles what the library reads of it to
FOLDER/read.pickle: (split, number of the class, image bytes).
"""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path

import numpy as np
import webdataset
from PIL import Image


def jpeg(number: int) -> bytes:
    """A JPEG that no other number gives."""
    blocks = np.random.default_rng(number).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    sink = io.BytesIO()
    Image.fromarray(blocks).resize((64, 48)).save(sink, "JPEG", quality=90)
    return sink.getvalue()


def main() -> None:
    """Write and read."""
    folder = Path(sys.argv[1])
    (folder / "shards").mkdir()
    found = []
    for split, numbers in {"train": range(30), "val": range(30, 36)}.items():
        with webdataset.ShardWriter(
            f"{folder}/shards/animals-{split}-%06d.tar", maxcount=8, verbose=0
        ) as sink:
            for number in numbers:
                sample = {
                    "__key__": f"{number:06d}",
                    "jpg": jpeg(number),
                    "cls": number % 3,
                    "txt": "a caption",
                }
                sink.write(sample)
        shards = sorted(str(path) for path in folder.glob(f"shards/animals-{split}-*.tar"))
        for row in webdataset.WebDataset(shards, shardshuffle=False):
            found.append((split, int(row["cls"]), row["jpg"]))
    (folder / "read.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
