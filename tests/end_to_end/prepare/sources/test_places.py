"""Sources and datasets in odd places, and odd words on the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.job import prepare_version
from shardmill.beam_jobs.request import JobRequest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import GO_ON, UsageError
from shardmill.infra.settings import load_settings
from tests.samples.images.photos import make_photos, write


def run(source: Path | str, root: Path | str, dataset: str = "d") -> dict[str, Any]:
    config = PrepareConfig.model_validate({"runner": {"processes": 2, "block_images": 8}})
    return prepare_version(JobRequest(source=str(source), dataset=dataset, root=str(root), config=config))


def command(*words: str | bytes, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    argv: Sequence[str | bytes] = [sys.executable, "-m", "shardmill.beam_jobs.prepare", *words]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env=environment,
        errors="backslashreplace",
    )  # fmt: skip


def uris(root: Path, dataset: str = "d") -> list[str]:
    found: list[str] = Catalog(root).open(dataset).inputs()["uri"].to_pylist()
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "source", {"a": 6, "b": 4})


# -- neither swallows the other ------------------------------------------------------------------------


def test_datasets_and_runs_within_the_source_are_no_part_of_it(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source)
    monkeypatch.delenv("SHARDMILL_RUNS", raising=False)
    before = run(".", "datasets")
    write(source, {"runs/first/run.json": b"{}", "runs/first/plot.png": b"no class of ours"})
    assert run(".", "datasets")["unchanged"]
    other = run(".", "datasets", dataset="other")
    assert before["classes"] == other["classes"] == ["a", "b"]
    assert uris(source / "datasets") == uris(source / "datasets", "other")
    assert before["num_inputs"] == other["num_inputs"] == 10


def test_a_link_to_the_datasets_is_left_out_too(source: Path, tmp_path: Path) -> None:
    inside = source / "c/deep"
    inside.mkdir(parents=True)
    (tmp_path / "link").symlink_to(inside)
    run(source, tmp_path / "link")
    assert run(source, tmp_path / "link")["unchanged"]
    assert run(source, inside)["unchanged"]


def test_a_source_by_uri_leaves_the_datasets_out(source: Path) -> None:
    run(f"file://{source}", source / "datasets")
    again = run(f"file://{source}", f"file://{source}/datasets")
    assert (again["unchanged"], again["num_inputs"]) == (True, 10)


def test_a_class_named_like_the_folder_of_runs_is_a_class(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(source)
    monkeypatch.delenv("SHARDMILL_RUNS", raising=False)
    make_photos(source, {"runs": 2})
    assert set(run(".", tmp_path / "root")["class_counts_before"]) == {"a", "b", "runs"}


@pytest.mark.parametrize(
    ("within", "root", "says"),
    [
        ("root/d", "root", "is in the folder of the dataset d"),
        ("root/d/photos", "root", "is in the folder of the dataset d"),
        ("root", "root", "is the folder of the datasets itself"),
    ],
)
def test_a_source_where_datasets_are_written_is_refused(
    within: str, root: str, says: str, tmp_path: Path
) -> None:
    source = make_photos(tmp_path / within, {"a": 3})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=says) as caught:
        run(source, tmp_path / root)
    assert "--root" in str(caught.value.remedy)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_source_beside_the_dataset_in_its_root_is_fine(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "root/raw", {"a": 3})
    assert run(source, tmp_path / "root")["num_records"] == 3


# -- words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["", "--dataset", "d"], "the source is empty"),
        (["x"], "required: --dataset"),
        (["x", "--dataset", "d", "--failure-budget", "much"], "invalid float value: 'much'"),
        (["x", "--dataset", "d", "--root", b"r_\xff"], r"not UTF-8: .*r_\xff"),
        ([b"s3://bucket/\xff", "--dataset", "d"], "not UTF-8"),
        (["x", "--dataset", "d", "--set", b'filter.ignore=["\xff"]'], "not UTF-8"),
    ],
)
def test_words_that_cannot_be(words: list[str | bytes], says: str, tmp_path: Path) -> None:
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    error, remedy = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert says.partition(".*")[0] in error
    assert says.rpartition(".*")[2] in error
    assert remedy.startswith("remedy: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [b"s_\xff", rb"s_\x41"])
def test_a_source_is_found_by_the_name_that_was_typed(name: bytes, tmp_path: Path) -> None:
    make_photos(tmp_path / os.fsdecode(name), {"a": 3})
    done = command(name, "--dataset", "d", "--root", "root", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(uris(tmp_path / "root")) == 3


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("pydantic", signal.SIGINT),
        ("pyarrow", signal.SIGTERM),
        pytest.param("pydantic", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("pyarrow", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_stop_while_libraries_load_is_no_traceback(module: str, number: signal.Signals) -> None:
    script = (
        "import os, runpy, sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == '{module}': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Stop())\n"
        "sys.argv[1:] = ['x', '--dataset', 'd']\n"
        "runpy.run_module('shardmill.beam_jobs.prepare', run_name='__main__', alter_sys=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"error: stopped on request\nremedy: {GO_ON}\n"


def test_one_class_is_a_list_of_one_and_none_is_an_error() -> None:
    def classes(text: str) -> tuple[str, ...] | None:
        config = load_settings(PrepareConfig, section="prepare", overrides=[f"filter.classes={text}"])
        return config.filter.classes

    assert classes("cat") == classes('["cat"]') == ("cat",)
    with pytest.raises(UsageError, match=r"filter\.classes = \[\]"):
        classes("[]")


def test_a_dry_run_keeps_what_libraries_print_to_itself(source: Path, tmp_path: Path) -> None:
    # A TIFF whose directory says more than it holds; libtiff prints its complaint on standard error.
    head = b"II*\0\x08\0\0\0"
    entries = [(256, 8), (257, 8), (258, 8), (259, 5), (262, 1), (273, 200), (277, 1), (278, 8), (279, 50)]
    directory = len(entries).to_bytes(2, "little")
    for tag, value in entries:
        directory += tag.to_bytes(2, "little") + b"\x04\0\x01\0\0\0" + value.to_bytes(4, "little")
    write(source, {f"a/{number}.tif": head + directory + bytes(4) + b"\xff" * 130 for number in range(4)})
    done = command(str(source), "--dataset", "d", "--dry-run", "--root", str(tmp_path / "root"))
    assert done.returncode == 0
    assert done.stderr == ""
