"""The commands and examples of every page run, in order, in a folder that looks like the reader's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation.blocks import PAGES, blocks
from tests.documentation.workplace import environment, make_workplace

# A page for `make test`; the others start Prefect or TensorFlow many times.
QUICK = {"what-becomes-of-an-image.md"}
# Pages whose examples need packages of their own, and the tests that run them.
ELSEWHERE = {
    "add-a-source-kind.md",  # tests/end_to_end/prepare/sources/test_own_kind.py
    "export.md",  # tests/third_party/test_readers.py
    "pytorch.md",  # tests/torch/test_docs.py
    "query-and-views.md",  # tests/unit/training/test_documented_python.py
    "reading-elsewhere.md",  # tests/third_party/test_readers.py
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workplace, made once; each page gets a copy in the same place: its source is the same."""
    return make_workplace(tmp_path_factory.mktemp("made") / "work")


def _pages() -> list[object]:
    runnable = [
        page
        for page in PAGES
        if page.name not in ELSEWHERE
        and any(block.kind in ("python", "shell") and not block.not_run for block in blocks(page))
    ]
    marks = {page: () if page.name in QUICK else (pytest.mark.slow,) for page in runnable}
    return [pytest.param(page, marks=marks[page], id=page.name) for page in runnable]


@pytest.mark.parametrize("page", _pages())
def test_the_page_runs(page: Path, made: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    kept = made.with_name("kept")
    if not kept.exists():
        shutil.copytree(made, kept)
    shutil.rmtree(made)
    shutil.copytree(kept, made)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_page.py")), str(page)],
        cwd=made,
        env=environment(tmp_path_factory.getbasetemp() / "home"),
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    sys.stdout.write(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
