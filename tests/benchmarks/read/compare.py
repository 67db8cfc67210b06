"""Images per second of Shardmill's reader beside those of others, over the same stored JPEGs, in one table.

    python -m tests.benchmarks.read.compare [FOLDER] [--images N] [--rounds N] [--seconds S] [--only a,b]

All of them read photographs of short side 256 (JPEG of quality 90, 4:2:0), each in its own format and by the
settings that its guide recommends. They cut a random window (area 0.08 to 1, aspect 3/4 to 4/3), resize it to
224, mirror every other one, and make batches of 256 uint8 images with their labels, with two workers or
threads. Files are in the page cache. Readers that leave decoding to their user get simplejpeg, the fastest
decoder that can be installed by name; ``--decoder opencv`` gives them what most people take.

Each measurement is a process of its own: it makes its first batch, warms up, and is then measured. The
readers take turns, several rounds; medians are shown, with their spread (half of the range), how much faster
Shardmill's numpy batches are, and how much less processor time they take. CPU is that of the process and its
workers while it is measured; memory is theirs together (PSS), at its largest. *limit* is Shardmill's decoder
alone: decode, crop and resize over bytes in memory, in two processes without other work.

In the first round each reader reads as many images as there are before it is measured, and says what they
are. The table is followed by a line for each that read other labels, colours or details than the others.

Peers live in environments of their own, made on first use from the lists in ``requirements/``. One that
cannot be made is a row that says why.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardmill.training.reading import load_table
from tests.benchmarks.inputs.arguments import REQUIREMENTS, add_folders, comparison_parser, refuse_unknown
from tests.benchmarks.inputs.stored_photographs import make_stored
from tests.benchmarks.measuring.history import note
from tests.benchmarks.measuring.reader_process import QUIET, REPOSITORY, Rate, ReaderFailed, measure
from tests.benchmarks.read.peers.reading import DECODER
from tests.environments import NotInstallable, environment

_OWN, _LIMIT, _GZIP, _PLAIN = "shardmill", "limit", "shardmill-gzip", "shardmill-tf"
_AIM, _LIMIT_AIM = 1.3, 0.85

# How far a reader may be off the median of all: by random windows, filters, and the ends of epochs.
_LABELS_TOLERANCE = 0.08  # share of the images with other labels
_COLOUR_TOLERANCE = 3.0  # grey levels, mean over the classes
_DETAIL_TOLERANCE = 0.25  # of the difference between neighbouring pixels


@dataclass(frozen=True, slots=True)
class Reader:
    """A way to read the photographs.

    Attributes:
        title: in the table.
        module: name in tests.benchmarks.read.peers.
        way: of the module, or None for its first.
        requirements: the list of packages of its environment; None for Shardmill's own.
        prepares: whether it has a format of its own to write.
    """

    title: str
    module: str
    way: str | None = None
    requirements: str | None = None
    prepares: bool = False

    def argv(self, python: Path, action: str, work: Path, *more: str) -> list[str]:
        """A command line of the reader's module."""
        out = work / "formats" / self.module
        module = f"tests.benchmarks.read.peers.{self.module}"
        chosen = ["--way", self.way] if self.way else []
        return [str(python), "-m", module, action, str(work), str(out), *chosen, *more]


READERS = {
    _LIMIT: Reader("limit: the decoder alone", "shardmill.numpy_batches", "limit"),
    _OWN: Reader("Shardmill, numpy", "shardmill.numpy_batches", "batches"),
    _PLAIN: Reader("Shardmill, tf.data", "shardmill.tf_data", "tf"),
    "shardmill-torch": Reader("Shardmill, PyTorch", "shardmill.torch_data", "workers", "torch"),
    "shardmill-torch-threads": Reader(
        "Shardmill, PyTorch, num_workers=0", "shardmill.torch_data", "threads", "torch"
    ),
    "shardmill-grain": Reader("Shardmill, Grain", "shardmill.numpy_batches", "grain"),
    _GZIP: Reader("Shardmill, tf.data, gzip shards", "shardmill.tf_data", "tf-gzip"),
    "spdl": Reader("SPDL", "spdl", "functions", "torch"),
    "spdl-ffmpeg": Reader("SPDL, its own decoder", "spdl", "ffmpeg", "torch"),
    "grain": Reader("Grain, ArrayRecord", "grain", None, "tensorflow", True),
    "torchcodec": Reader("torch DataLoader, TorchCodec", "torch", "torchcodec", "torch"),
    "torch": Reader("torch DataLoader", "torch", "function", "torch"),
    "torch-pillow": Reader("torch DataLoader, Pillow", "torch", "pillow", "torch"),
    "huggingface": Reader("Hugging Face datasets", "huggingface", None, "torch", True),
    "litdata": Reader("LitData", "litdata", None, "torch", True),
    "webdataset": Reader("WebDataset", "webdataset", None, "torch", True),
    "mosaicml": Reader("MosaicML Streaming", "mosaicml", None, "torch", True),
    "ffcv": Reader("FFCV", "ffcv", None, "ffcv", True),
    "dali": Reader("NVIDIA DALI (CPU)", "dali", None, "dali"),
    "tfdata": Reader("tf.data, tuned", "tfdata", "tuned"),
    "tfds": Reader("TensorFlow Datasets, fused decoding", "tfds", None, "tensorflow"),
    "tutorial": Reader("tf.data, as in tutorials", "tfdata", "tutorial"),
}


def ready(
    readers: dict[str, Reader], environments: Path, work: Path
) -> tuple[dict[str, Path], dict[str, str]]:
    """Make environments and formats: (name -> interpreter, name -> why it cannot be measured)."""
    pythons: dict[str, Path] = {}
    missing: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, reader in readers.items():
        wanted = reader.requirements
        if wanted in refused:
            missing[name] = refused[wanted]
            continue
        try:
            pythons[name] = (
                environment(environments, REQUIREMENTS / f"{wanted}.txt") if wanted else Path(sys.executable)
            )
            if reader.prepares and not (work / "formats" / reader.module).exists():
                _prepare(reader, pythons[name], work)
        except NotInstallable as why:
            missing[name] = refused[str(wanted)] = str(why)
        except ReaderFailed as why:
            missing[name] = f"cannot write its format: {why}"
    return {name: python for name, python in pythons.items() if name not in missing}, missing


def _prepare(reader: Reader, python: Path, work: Path) -> None:
    (work / "formats").mkdir(exist_ok=True)
    done = subprocess.run(
        reader.argv(python, "prepare", work),
        cwd=REPOSITORY,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReaderFailed((done.stderr.strip().splitlines() or ["it said nothing"])[-1])


def show(rates: dict[str, list[Rate]], missing: dict[str, str], title: str, labels: Counter[str]) -> None:
    """Print the table for docs/benchmarks.md, fastest first, and what was not as it should be."""
    print(title)
    head = ("images/s", "±", "of limit", "faster by", "CPU µs", "less by", "first s", "peak MiB")
    print(_line("reader", head))
    print(_line("---", ["---:"] * len(head)))
    for name in sorted(rates, key=lambda name: -_median(rates[name], _speed)):
        own = READERS[name].module.startswith("shardmill.") and name != _LIMIT
        print(_line(f"**{READERS[name].title}**" if own else READERS[name].title, _cells(name, rates)))
    for name, why in missing.items():
        print(f"{READERS[name].title}: not measured: {why}")
    seen = {name: of_reader[0].seen for name, of_reader in rates.items() if of_reader[0].seen}
    for line in (*aims(rates), *strange(seen, labels)):
        print(line)


def _line(title: str, cells: Iterable[str]) -> str:
    return f"| {title:<38} | " + " | ".join(f"{cell:>9}" for cell in cells) + " |"


def aims(rates: dict[str, list[Rate]]) -> list[str]:
    """The goals and their results, a line each."""
    lines = []
    if found := _ratio(rates, _OWN, _LIMIT):
        note("read, indexed, of the limit beside the peers", found)
        lines.append(f"share of the limit: {found:.2f} (aim {_LIMIT_AIM})")
    peers = [name for name in rates if not READERS[name].module.startswith("shardmill.")]
    for words, figure in (("images/s", _speed), ("CPU", _thrift)):
        times = {name: found for name in peers if (found := _ratio(rates, _OWN, name, figure))}
        if times:
            best = min(times, key=lambda name: times[name])
            note(f"read, times the best peer by {words}", times[best])
            lines.append(
                f"times the best peer by {words} ({READERS[best].title}): {times[best]:.2f} (aim {_AIM})"
            )
    if found := _ratio(rates, _GZIP, _PLAIN):
        lines.append(f"gzip shards against uncompressed ones: {found:.2f}")
    return lines


def strange(seen: dict[str, dict[str, Any]], labels: Counter[str]) -> Iterator[str]:
    """Say what a reader read that the others did not, a line each.

    Args:
        seen: what each reader said of its images (``look`` in peers/reading.py).
        labels: the number of images of each label in the dataset.
    """
    total = labels.total()
    off = {
        name: sum(((labels - Counter(of["labels"])) + (Counter(of["labels"]) - labels)).values()) / 2 / total
        for name, of in seen.items()
    }
    means = {
        name: np.array([of["means"].get(label, [0] * 3) for label in labels]) for name, of in seen.items()
    }
    usual = np.median([*means.values()], axis=0) if means else 0
    for name, of in seen.items():
        title = READERS[name].title
        if of["images"] != total or off[name] > _LABELS_TOLERANCE:
            yield f"!! {title}: {of['images']:,} images of {total:,}, {off[name]:.1%} other labels"
        colour = np.average(np.abs(means[name] - usual).mean(axis=1), weights=[*labels.values()])
        if colour > _COLOUR_TOLERANCE:
            yield f"!! {title}: other colours, by {colour:.1f} grey levels"
        detail = of["detail"] / statistics.median(other["detail"] for other in seen.values())
        if abs(detail - 1) > _DETAIL_TOLERANCE:
            yield f"!! {title}: {detail:.2f} of the others' detail"
    exact = "; ".join(READERS[name].title for name in seen if not off[name])
    yield f"exactly the labels of an epoch: {exact or 'nobody'}"
    mixed = "; ".join(f"{READERS[name].title} {share:.1%}" for name, share in off.items() if share)
    if mixed:
        yield f"epochs that run into one another, other labels: {mixed}"


def _speed(rate: Rate) -> float:
    return rate.images_per_second


def _thrift(rate: Rate) -> float:
    """Images a second of processor time."""
    return 1e6 / rate.cpu_micros


def _median(of_reader: list[Rate], figure: Callable[[Rate], float]) -> float:
    return statistics.median(map(figure, of_reader))


def _ratio(
    rates: dict[str, list[Rate]], name: str, to: str, figure: Callable[[Rate], float] = _speed
) -> float | None:
    """Median of the ratios within a round."""
    pairs = zip(rates.get(name, ()), rates.get(to, ()), strict=False)
    found = [figure(rate) / figure(other) for rate, other in pairs]
    return statistics.median(found) if found else None


def _cells(name: str, rates: dict[str, list[Rate]]) -> list[str]:
    """The row of a reader."""
    of_reader = rates[name]
    speeds = [*map(_speed, of_reader)]
    shares = _ratio(rates, name, _LIMIT), _ratio(rates, _OWN, name), _ratio(rates, _OWN, name, _thrift)
    of_limit, times, thrift = (f"{share:.2f}" if share else "" for share in shares)
    return [
        f"{statistics.median(speeds):,.0f}",
        f"{(max(speeds) - min(speeds)) / 2:,.0f}",
        of_limit,
        times,
        f"{1e6 / _median(of_reader, _thrift):,.0f}",
        thrift,
        f"{statistics.median(rate.first_seconds for rate in of_reader):.2f}" if name != _LIMIT else "",
        f"{max(rate.peak_pss_bytes for rate in of_reader) / 2**20:,.0f}",
    ]


def _parse() -> argparse.Namespace:
    parser = comparison_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument(
        "--warm", type=float, default=2.0, help="seconds between the first batch and measuring"
    )
    parser.add_argument("--only", default=",".join(READERS), help="names of readers, with commas")
    parser.add_argument("--decoder", choices=("simplejpeg", "opencv"), default="simplejpeg")
    add_folders(parser)
    parser.set_defaults(images=8192)  # a multiple of batches, shards and chunks: no reader drops any
    told = parser.parse_args()
    refuse_unknown(parser, told.only, READERS, "reader")
    return told


def main() -> None:
    """Measure all in turn and print the table."""
    told = _parse()
    readers = {name: reader for name, reader in READERS.items() if name in told.only.split(",")}
    times = ["--warm", str(told.warm), "--seconds", str(told.seconds)]
    with tempfile.TemporaryDirectory(prefix="read-peers-") as scratch:
        work = (told.work or Path(scratch, "work")).absolute()
        version = make_stored(work, told.images, told.folder)
        labels = Counter(map(str, load_table(version, "train").label.tolist()))
        pythons, missing = ready(readers, told.environments, work)
        rates: dict[str, list[Rate]] = {}
        for turn in range(told.rounds):
            for name, python in pythons.items():
                if name in missing:
                    continue
                looks = ["--look", str(labels.total())] if not turn else []
                argv = readers[name].argv(python, "read", work, *times, *looks)
                try:
                    rate = measure(argv, {DECODER: told.decoder})
                except ReaderFailed as why:
                    missing[name] = str(why)
                    rates.pop(name, None)
                    continue
                rates.setdefault(name, []).append(rate)
                print(f"{turn + 1} {name}: {rate.images_per_second:,.0f} images/s", file=sys.stderr)
    title = (
        f"{labels.total():,} photographs, medians of {told.rounds}; who brings no decoder has {told.decoder}"
    )
    show(rates, missing, title, labels)


if __name__ == "__main__":
    main()
