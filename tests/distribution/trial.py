"""Install what was built into an empty environment and use it there, without the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.distribution.building import Refused
from tests.samples.repositories_of_users import ROOT

# The tests of what the package without extras is for.
READER_TESTS = (
    "tests/unit/infra/format",
    "tests/unit/infra/dataset",
    "tests/unit/training/order",
    "tests/unit/training/reading",
    "tests/unit/training/test_reader_alone.py",
    "--ignore=tests/unit/training/reading/test_every_reader.py",  # needs JAX, Grain and TensorFlow
)
TESTERS = ("flask", "flask-cors", "hypothesis", "moto[s3]", "pytest", "pytest-timeout")
FIRST_BATCH = """\
import shardmill
images, labels = next(iter(shardmill.open_dataset("sample").batches("train", batch_size=32, image_size=224)))
assert images.shape == (32, 224, 224, 3), images.shape
"""


@dataclass(frozen=True)
class Row:
    """A line of the table: what was done on which Python, with what size (MB) and time (seconds)."""

    python: str
    what: str
    megabytes: float | None = None
    seconds: float | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The line as text; empty where there is no figure."""
        size = "" if self.megabytes is None else f"{self.megabytes:,.0f}"
        return self.python, self.what, size, "" if self.seconds is None else f"{self.seconds:,.2f}"


@dataclass(frozen=True)
class Trial:
    """Empty environments of one Python, one after the other in one folder.

    Attributes:
        version: of Python, such as "3.12".
        python: its interpreter.
        folder: does not exist yet.
        datasets: a folder with the dataset "sample".
    """

    version: str
    python: Path
    folder: Path
    datasets: Path

    def rows(self, archives: list[Path], *, with_demo: bool) -> Iterator[Row]:
        """Use the wheel without extras, then the source distribution, and if asked everything."""
        sdist, wheel = archives[0], archives[-1]  # of two wheels the one for this kind of machine
        with self:
            yield from self._base("wheel", wheel)
            self._install(*TESTERS)
            yield self._reader_tests()
        with self:
            yield from self._base("sdist", sdist)
        if with_demo:
            with self:
                yield from self._everything(wheel)

    def _base(self, kind: str, archive: Path) -> Iterator[Row]:
        """Install the package without extras, and read a dataset."""
        seconds = self._install(archive)
        yield Row(self.version, f"{kind}: pip install shardmill", self._megabytes(), seconds)
        yield Row(self.version, f"{kind}: import shardmill", None, self._timed("import shardmill"))
        yield Row(self.version, f"{kind}: first batch of numpy", None, self._timed(FIRST_BATCH))

    def _everything(self, archive: Path) -> Iterator[Row]:
        """Install the package with all that the demonstration needs, and run it."""
        seconds = self._install(f"{archive}[all]")
        yield Row(self.version, "pip install 'shardmill[all]'", self._megabytes(), seconds)
        started = time.monotonic()
        self._checked(self.folder / "venv" / "bin" / "shardmill", "demo")
        yield Row(self.version, "demo", None, time.monotonic() - started)

    def __enter__(self) -> None:
        (self.folder / "work").mkdir(parents=True)
        (self.folder / "work" / "datasets").symlink_to(self.datasets)
        self._checked(self.python, "-m", "venv", self.folder / "venv")

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    def _install(self, *what: str | Path) -> float:
        """Install at the versions of constraints.txt; return the seconds that it took."""
        started = time.monotonic()
        self._run("-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *what)
        seconds = time.monotonic() - started
        self._run("-m", "pip", "check")
        return seconds

    def _megabytes(self) -> float:
        """The size of all installed files except those of pip (MB of 1,000,000 bytes)."""
        (site,) = self.folder.glob("venv/lib/python*/site-packages")
        files = [path for path in site.rglob("*") if path.is_file()]
        kept = [path for path in files if not re.match(r"pip\b", path.relative_to(site).parts[0])]
        return sum(path.stat().st_size for path in kept) / 1e6

    def _timed(self, code: str) -> float:
        """Median of five new processes (seconds)."""
        times = []
        for _ in range(5):
            started = time.monotonic()
            self._run("-c", code)
            times.append(time.monotonic() - started)
        return median(times)

    def _reader_tests(self) -> Row:
        """Run the tests of the reader from a copy: beside them lies no package of the checkout."""
        place = self.folder / "copy"
        shutil.copytree(ROOT / "tests", place / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy2(ROOT / "pyproject.toml", place)
        started = time.monotonic()
        options = ("-q", "-m", "not slow", "-p", "no:cacheprovider")
        said = self._run("-m", "pytest", *options, *READER_TESTS, cwd=place)
        return Row(self.version, f"reader's tests: {said.splitlines()[-1]}", None, time.monotonic() - started)

    def _run(self, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Run a command with the environment's Python, and return its output."""
        return self._checked(self.folder / "venv" / "bin" / "python", *arguments, cwd=cwd)

    def _checked(self, *command: str | Path, cwd: Path | None = None) -> str:
        hidden = ("PYTHON", "VIRTUAL_ENV", "PREFECT", "SHARDMILL")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        env["PYTEST_ADDOPTS"] = "-p tests.distribution.without_extras"  # also of the tests that run tests
        env |= {f"{name}_HOME": f"{self.folder}/{name.lower()}" for name in ("SHARDMILL", "PREFECT")}
        done = subprocess.run(
            command, cwd=cwd or self.folder / "work", env=env, capture_output=True, text=True, timeout=1800,
            check=False,
        )  # fmt: skip
        if done.returncode:
            said = done.stdout[-6000:] + done.stderr[-6000:]
            raise Refused(f"Python {self.version}: {' '.join(map(str, command))}\n{said}")
        return done.stdout.strip()
