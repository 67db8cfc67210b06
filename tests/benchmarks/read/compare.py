"""Images per second of Shardmill's reader beside those of others, over the same stored JPEGs, in one table.

    python -m tests.benchmarks.read.compare [FOLDER] [--images N] [--rounds N] [--seconds S] [--only a,b]

All of them read photographs of short side 256 (JPEG of quality 90, 4:2:0), each in its own format and by the
settings that its guide recommends. They cut a random window (area 0.08 to 1, aspect 3/4 to 4/3), resize it to
224, mirror every other one, and make batches of 256 uint8 images, with two workers or threads. Files are in
the page cache. Readers that leave decoding to their user get OpenCV; ``--decoder simplejpeg`` gives them
Shardmill's own decoder.

Each measurement is a process of its own: it makes its first batch, warms up, and is then measured. The
readers take turns, several rounds; medians are shown. CPU is that of the process and its workers while it is
measured; memory is theirs together (PSS), at its largest. *limit* is Shardmill's decoder alone: decode, crop
and resize over bytes in memory, in two processes that do nothing else.

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
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.inputs.arguments import REQUIREMENTS, add_folders, comparison_parser, refuse_unknown
from tests.benchmarks.inputs.stored_photographs import make_stored
from tests.benchmarks.measuring.reader_process import QUIET, REPOSITORY, Rate, ReaderFailed, measure
from tests.benchmarks.read.peers.reading import DECODER
from tests.environments import NotInstallable, environment

_OWN, _LIMIT, _TUTORIAL, _GZIP = "shardmill", "limit", "tutorial", "shardmill-gzip"
_MEAN_TOLERANCE = 6.0  # grey levels that the mean of a reader's first batch may be off the median of all


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
    _OWN: Reader("Shardmill, tf.data", "shardmill.tf_data", "tf"),
    "shardmill-numpy": Reader("Shardmill, numpy batches", "shardmill.numpy_batches", "batches"),
    "shardmill-torch": Reader("Shardmill, torch", "shardmill.torch_data", None, "torch"),
    _GZIP: Reader("Shardmill, tf.data, gzip shards", "shardmill.tf_data", "tf-gzip"),
    "ffcv": Reader("FFCV", "ffcv", None, "ffcv", True),
    "huggingface": Reader("Hugging Face datasets", "huggingface", None, "torch", True),
    "tfdata": Reader("tf.data, tuned", "tfdata", "tuned"),
    "tfds": Reader("TensorFlow Datasets, fused decoding", "tfds", None, "tensorflow"),
    "grain": Reader("Grain, ArrayRecord", "grain", None, "tensorflow", True),
    "torch": Reader("torch DataLoader, OpenCV", "torch", "opencv", "torch"),
    "torch-pillow": Reader("torch DataLoader, Pillow", "torch", "pillow", "torch"),
    "webdataset": Reader("WebDataset", "webdataset", None, "torch", True),
    "dali": Reader("NVIDIA DALI (CPU)", "dali", None, "dali"),
    "mosaicml": Reader("MosaicML Streaming", "mosaicml", None, "torch", True),
    _TUTORIAL: Reader("tf.data, as in tutorials", "tfdata", "tutorial"),
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


def show(rates: dict[str, list[Rate]], missing: dict[str, str], title: str) -> None:
    """Print the table, fastest first, and what was not as it should be."""
    medians = {
        name: statistics.median(rate.images_per_second for rate in of_reader)
        for name, of_reader in rates.items()
    }
    print(title)
    head = ("images/s", "of limit", "faster by", "CPU µs", "first s", "peak MiB")
    print(f"{'':<38}" + "".join(f"{name:>10}" for name in head))
    for name in sorted(medians, key=lambda name: -medians[name]):
        print(f"{READERS[name].title:<38}" + "".join(f"{cell:>10}" for cell in _cells(name, rates)))
    for name, why in missing.items():
        print(f"{READERS[name].title:<38}not measured: {why}")
    for line in aims(rates):
        print(line)
    means = [rate.mean for of_reader in rates.values() for rate in of_reader if rate.mean is not None]
    for name, of_reader in rates.items():
        if any(r.mean and abs(r.mean - statistics.median(means)) > _MEAN_TOLERANCE for r in of_reader):
            print(f"!! {READERS[name].title}: other pictures than the others', or other windows")


def aims(rates: dict[str, list[Rate]]) -> list[str]:
    """The goals and their results, a line each."""
    if not rates.get(_OWN):
        return []
    strangers = [name for name, reader in READERS.items() if not reader.module.startswith("shardmill.")]
    times = {name: _ratio(rates, _OWN, name) for name in strangers}
    peers = {name: found for name, found in times.items() if found and name != _TUTORIAL}
    lines = []
    if found := _ratio(rates, _OWN, _LIMIT):
        lines.append(f"share of the limit: {found:.2f} (aim 0.85)")
    if peers:
        nearest = min(peers, key=lambda name: peers[name])
        lines.append(f"times the nearest peer ({READERS[nearest].title}): {peers[nearest]:.2f} (aim 1.25)")
    if found := times[_TUTORIAL]:
        lines.append(f"times the tutorial: {found:.2f} (aim 3)")
    if found := _ratio(rates, _GZIP, _OWN):
        lines.append(f"gzip shards against uncompressed ones: {found:.2f} (aim 0.85)")
    return lines


def _ratio(rates: dict[str, list[Rate]], name: str, to: str) -> float | None:
    """Median of the ratios within a round."""
    pairs = zip(rates.get(name, ()), rates.get(to, ()), strict=False)
    found = [rate.images_per_second / other.images_per_second for rate, other in pairs]
    return statistics.median(found) if found else None


def _cells(name: str, rates: dict[str, list[Rate]]) -> list[str]:
    """The row of a reader."""
    of_reader = rates[name]
    of_limit, times = _ratio(rates, name, _LIMIT), _ratio(rates, _OWN, name)
    return [
        f"{statistics.median(rate.images_per_second for rate in of_reader):,.0f}",
        f"{of_limit:.2f}" if of_limit else "",
        f"{times:.2f}" if times else "",
        f"{statistics.median(rate.cpu_micros for rate in of_reader):,.0f}",
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
    parser.add_argument("--decoder", choices=("opencv", "simplejpeg"), default="opencv")
    add_folders(parser)
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
        make_stored(work, told.images, told.folder)
        pythons, missing = ready(readers, told.environments, work)
        rates: dict[str, list[Rate]] = {}
        for turn in range(told.rounds):
            for name, python in pythons.items():
                if name in missing:
                    continue
                argv = readers[name].argv(python, "read", work, *times)
                try:
                    rate = measure(argv, {DECODER: told.decoder})
                except ReaderFailed as why:
                    missing[name] = str(why)
                    rates.pop(name, None)
                    continue
                rates.setdefault(name, []).append(rate)
                print(f"{turn + 1} {name}: {rate.images_per_second:,.0f} images/s", file=sys.stderr)
    title = f"{told.images:,} photographs, medians of {told.rounds}; who brings no decoder has {told.decoder}"
    show(rates, missing, title)


if __name__ == "__main__":
    main()
