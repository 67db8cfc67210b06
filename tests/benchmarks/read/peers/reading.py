"""Shared code of the readers of tests/benchmarks/read/compare.py. Runs in every environment.

A reader's module gives ``prepare(work, out)``, which writes its own format from the stored JPEGs in
``work/jpegs``, and ``batches(work, out)``, an endless iterator over (images uint8 [256, 224, 224, 3], labels
[256]). As a program::

    python -m tests.benchmarks.read.peers.torch prepare WORK OUT [--way NAME]
    python -m tests.benchmarks.read.peers.torch read WORK OUT [--way NAME] [--look N] --warm 3 --seconds 4

``read`` prints JSON lines: ``first`` (seconds to the first batch, imports apart), with ``--look`` ``seen``
(what the first N images are: see ``look``), ``begin`` and ``end`` (images, seconds) around what is measured.
Then it waits for its standard input to end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SIZE, BATCH, WORKERS = 224, 256, 2
# torchvision's defaults, and so what everybody trains with.
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
DECODER = "SHARDMILL_BENCH_DECODER"  # simplejpeg or opencv, for readers that leave decoding to their user

Prepare = Callable[[Path, Path], None]
Batches = Callable[[Path, Path], Iterator[Any]]
_TRIES = 10


def main(ways: dict[str, Batches], prepare: Prepare | None = None) -> None:
    """The command line of a reader.

    Args:
        ways: name -> the reader; the first one is the default.
        prepare: writes its format, once for all ways.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("prepare", "read"))
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--way", choices=list(ways), default=next(iter(ways)))
    parser.add_argument("--look", type=int, default=0, help="images of the data set, to say what is read")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before measuring")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of measuring")
    told = parser.parse_args()
    if told.action == "read":
        measure(lambda: ways[told.way](told.work, told.out), told.look, told.warm, told.seconds)
    elif prepare is not None:
        prepare(told.work, told.out)


def measure(make: Callable[[], Iterator[Any]], images: int, warm: float, seconds: float) -> None:
    """Iterate over what ``make`` returns, pairs (images, labels) or numbers of images, and print the rate."""
    started = time.perf_counter()
    batches = make()
    first = next(batches)
    say("first", seconds=time.perf_counter() - started)
    if images and not isinstance(first, int):
        say("seen", **look(itertools.islice(itertools.chain([first], batches), images // BATCH)))
    _count(batches, warm)
    say("begin")
    counted, elapsed = _count(batches, seconds)
    say("end", images=counted, seconds=elapsed)
    sys.stdin.read()
    if hasattr(batches, "close"):  # a generator may have something to clear away
        batches.close()
    os._exit(0)  # ending worker processes in good order takes some readers many seconds


def say(event: str, **fields: Any) -> None:
    """One JSON line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def _count(batches: Iterator[Any], seconds: float) -> tuple[int, float]:
    """(images, seconds) from now to the end of the batch that is under way when the time is up."""
    started, images = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        batch = next(batches)
        images += batch if isinstance(batch, int) else _checked(batch)
    return images, time.perf_counter() - started


def _checked(batch: Any) -> int:
    (shape, kind), labels = (tuple(batch[0].shape), str(batch[0].dtype)), tuple(batch[1].shape)
    if shape != (BATCH, SIZE, SIZE, 3) or "uint8" not in kind or labels != (BATCH,):
        raise SystemExit(f"a batch of {kind} {shape} with labels {labels}")
    return BATCH


def look(batches: Iterable[Any]) -> dict[str, Any]:
    """Describe batches by figures that random windows do not change much.

    Returns:
        images: their number. labels: label -> number of images. means: label -> mean red, green and blue.
        detail: mean difference between neighbouring pixels: less work on an image blurs it.
    """
    import numpy as np

    counts: Counter[int] = Counter()
    sums: dict[int, Any] = {}
    detail = []
    for batch in batches:
        _checked(batch)
        images, labels = np.asarray(batch[0]), np.asarray(batch[1]).tolist()
        detail.append(np.abs(np.diff(images[:, ::8].astype(np.int16), axis=2)).mean())
        counts.update(labels)
        for label, colour in zip(labels, images.mean(axis=(1, 2)), strict=True):
            sums[label] = sums.get(label, 0) + colour
    means = {label: (total / counts[label]).tolist() for label, total in sums.items()}
    return {
        "images": sum(counts.values()),
        "labels": counts,
        "means": means,
        "detail": float(np.mean(detail)),
    }


# -- for readers that leave the work on an image to their user -------------------------------------------


def random_window(height: int, width: int) -> tuple[int, int, int, int]:
    """(y, x, height, width) of a window of random area, aspect and place, as in Szegedy et al., 2015."""
    for _ in range(_TRIES):
        area = height * width * random.uniform(*SCALE)
        aspect = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, height - high), random.randint(0, width - wide), high, wide
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def random_example(data: bytes, out: Any = None) -> Any:
    """A stored JPEG as an example, uint8 [224, 224, 3]: random window, resized, every other one mirrored.

    ``out``: memory for it; otherwise it is new.
    """
    import cv2

    cv2.setNumThreads(0)
    pixels = decode(data)
    top, left, height, width = random_window(*pixels.shape[:2])
    cut = pixels[top : top + height, left : left + width]
    resized = cv2.resize(cut, (SIZE, SIZE), dst=out, interpolation=cv2.INTER_LINEAR)
    return cv2.flip(resized, 1, dst=resized) if random.random() < 0.5 else resized


def decode(data: bytes) -> Any:
    """uint8 [h, w, 3], RGB."""
    if os.environ.get(DECODER) == "simplejpeg":
        import simplejpeg

        return simplejpeg.decode_jpeg(data)
    import cv2
    import numpy as np

    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def endless(loader: Any, pair: Callable[[Any], Any] = tuple) -> Iterator[Any]:
    """The batches of a loader that must be started again for every epoch, as (images, labels)."""
    while True:
        for batch in loader:
            yield pair(batch)
