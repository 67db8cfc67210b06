"""A decoder that crashes, hangs or eats memory costs one row. The deeds are those of tests/faults/hostile."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from tests.faults.hostile.deeds import WIDTH, height_of
from tests.samples.images.photos import make_photos, png, write
from tests.samples.preparing.command import prepare_command
from tests.samples.sources import drawn_shapes

HOSTILE = Path(__file__).parent / "hostile"
MIB = 1 << 20
LIMITS = ("runner.image_seconds=2", f"runner.image_memory_bytes={256 * MIB}")

# deed of the file -> the reason of its row
CRASHES = {
    "abort": "decoder_crashed",
    "segfault": "decoder_crashed",
    "bus": "decoder_crashed",
    "illegal": "decoder_crashed",
    "arithmetic": "decoder_crashed",
    "exit": "decoder_crashed",
}
# "kill" is what the system does to a large process when memory runs out.
SLOW_OR_LARGE = {
    "sleep": "decoder_hung",
    "sleep_with_the_gil": "decoder_hung",
    "eat": "decoder_out_of_memory",
    "kill": "decoder_out_of_memory",
    "no_memory": "decoder_out_of_memory",
}


def prepare(
    source: Path, root: Path, *settings: str, more: tuple[str, ...] = (), hostile: bool = True
) -> subprocess.CompletedProcess[str]:
    given = (*LIMITS, "runner.processes=2", "runner.block_images=8", "shards.num_shards=2", *settings)
    argv = prepare_command(source, root)
    argv += ["--json", "--failure-budget", "0.5", *more]
    argv += [word for setting in given for word in ("--set", setting)]
    environment = {**os.environ}
    if hostile:
        environment["PYTHONPATH"] = f"{HOSTILE}{os.pathsep}{environment.get('PYTHONPATH', '')}"
        environment["HOSTILE_MARKS"] = str(source.parent)
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, env=environment)


def outcome_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def shards(root: Path) -> dict[str, bytes]:
    """File name -> bytes of all shards and indexes."""
    files = [path for path in (root / "d/data").rglob("*-of-*") if path.is_file()]
    return {path.name: path.read_bytes() for path in sorted(files)}


def lost(root: Path) -> dict[str, dict[str, Any]]:
    rows = Catalog(root).open("d").inputs().to_pylist()
    return {row["uri"]: row for row in rows if row["outcome"] == "quarantined"}


def deed(name: str, seed: int = 900) -> bytes:
    return png(seed, height_of(name), WIDTH)


def processes_of(source: Path) -> list[psutil.Process]:
    """Whatever still has to do with this source."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(source) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A source without a hostile file, and what becomes of it."""
    folder = tmp_path_factory.mktemp("clean")
    source = make_photos(folder / "source", {"a": 30, "b": 20})
    outcome = outcome_of(prepare(source, folder / "root", hostile=False))
    assert outcome["num_records"] == 50
    return source, shards(folder / "root")


def with_files(clean: tuple[Path, dict[str, bytes]], folder: Path, files: dict[str, bytes]) -> Path:
    source = folder / "source"
    subprocess.run(["cp", "-a", str(clean[0]), str(source)], check=True)
    return write(source, files)


def test_every_crash_costs_one_row(clean: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    files = {f"a/00013-{name}.png": deed(name, 900 + at) for at, name in enumerate(CRASHES)}
    source = with_files(clean, tmp_path, files)
    done = prepare(source, tmp_path / "root")
    outcome = outcome_of(done)
    assert outcome["quarantine"] == {"decoder_crashed": len(CRASHES)}
    assert (outcome["num_records"], outcome["num_quarantined"]) == (50, len(CRASHES))
    found = lost(tmp_path / "root")
    assert set(found) == set(files)
    for row in found.values():
        assert (row["stage"], row["reason"]) == ("decode", "decoder_crashed")
        assert row["message"] == "an image library crashed on it, and its process with it"
        assert row["sha256"] is not None
    assert shards(tmp_path / "root") == clean[1]
    assert verify(Catalog(tmp_path / "root").open("d")).problems == []
    assert "SIGSEGV" in done.stderr
    assert processes_of(source) == []


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("sleep_with_the_gil", "eat", "kill", "no_memory"), id="in one run"),
        *(pytest.param((name,), id=name, marks=pytest.mark.slow) for name in SLOW_OR_LARGE),
    ],
)
def test_a_hang_or_a_glut_costs_one_row(
    names: tuple[str, ...], clean: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    bad = {f"a/000{at}3-bad.png": name for at, name in enumerate(names)}  # each in a block of its own
    source = with_files(clean, tmp_path, {path: deed(bad[path], 900 + at) for at, path in enumerate(bad)})
    outcome = outcome_of(prepare(source, tmp_path / "root"))
    assert outcome["quarantine"] == Counter(SLOW_OR_LARGE[name] for name in names)
    told = {
        "decoder_hung": "in work for more than 2 seconds, without an end",
        "decoder_out_of_memory": "needs more than 256 MiB of memory",
    }
    found = {path: (row["reason"], row["message"]) for path, row in lost(tmp_path / "root").items()}
    assert found == {path: (SLOW_OR_LARGE[name], told[SLOW_OR_LARGE[name]]) for path, name in bad.items()}
    assert shards(tmp_path / "root") == clean[1]
    assert processes_of(source) == []
    assert not list((tmp_path / "root/d").glob("spool/*/verdicts/*")), "verdicts go with the spool"


@pytest.mark.slow
def test_rows_are_the_same_in_one_process_and_in_several(
    clean: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source = with_files(clean, tmp_path, {"a/1.png": deed("segfault"), "b/2.png": deed("sleep", 901)})
    tables = []
    for processes in (1, 3):
        root = tmp_path / f"root{processes}"
        outcome_of(prepare(source, root, f"runner.processes={processes}"))
        (inputs,) = (root / "d/data").rglob("inputs*.parquet")
        tables.append((inputs.read_bytes(), shards(root)))
    assert tables[0] == tables[1]


def test_copies_of_a_culprit_cost_one_trial(clean: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    copies = {f"a/copy{number}.png": deed("segfault") for number in range(9)}
    done = prepare(with_files(clean, tmp_path, copies), tmp_path / "root")
    assert outcome_of(done)["quarantine"] == {"decoder_crashed": 9}
    assert done.stderr.count("is quarantined") == 1


def test_memory_that_was_short_for_a_moment_costs_nothing(
    clean: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source = with_files(clean, tmp_path, {"a/fine.png": deed("short_in_company")})
    outcome = outcome_of(prepare(source, tmp_path / "root"))
    assert (outcome["num_records"], outcome["num_quarantined"]) == (51, 0)


def test_a_crash_that_no_file_does_alone_ends_the_job(
    clean: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source = with_files(clean, tmp_path, {"a/odd.png": deed("crash_in_company")})
    done = prepare(source, tmp_path / "root")
    assert done.returncode == 4
    assert "SIGABRT 3 times in a row, last while processing" in done.stderr
    assert "a/odd.png" in done.stderr
    assert "runner.processes=1" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root/d/manifests").exists()


@pytest.mark.slow
def test_a_larger_limit_tries_again(clean: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    """A run that failed because of a hung file goes on with a larger limit, and tries the file anew."""
    source = with_files(clean, tmp_path, {"a/slow.png": deed("sleep_3_seconds")})
    strict = prepare(source, tmp_path / "root", more=("--failure-budget", "0"))
    assert strict.returncode == 3, strict.stderr
    assert "decoder_hung" in strict.stderr
    again = prepare(source, tmp_path / "root", more=("--failure-budget", "0"))
    assert again.returncode == 3, again.stderr
    assert "is quarantined" not in again.stderr, "a verdict of the same limits still holds"
    patient = outcome_of(prepare(source, tmp_path / "root", "runner.image_seconds=30"))
    assert (patient["num_records"], patient["num_quarantined"]) == (51, 0)
    assert patient["reused"]["images"] >= 30


@pytest.mark.slow
def test_a_published_row_is_tried_again_with_a_larger_limit(
    clean: tuple[Path, dict[str, bytes]], tmp_path: Path
) -> None:
    source = with_files(clean, tmp_path, {"a/slow.png": deed("sleep_3_seconds")})
    root = tmp_path / "root"
    assert outcome_of(prepare(source, root))["quarantine"] == {"decoder_hung": 1}
    assert outcome_of(prepare(source, root))["unchanged"]
    assert outcome_of(prepare(source, root, "runner.image_seconds=1"))["unchanged"]
    patient = outcome_of(prepare(source, root, "runner.image_seconds=30"))
    assert (patient["version"], patient["num_records"], patient["num_quarantined"]) == (2, 51, 0)


def test_a_dry_run_survives_it_too(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"a": 12})
    write(source, {"a/bad.png": deed("segfault"), "a/worse.png": deed("sleep_with_the_gil", 901)})
    foreseen = outcome_of(prepare(source, tmp_path / "root", more=("--dry-run",)))
    assert (foreseen["sample"]["num_images"], foreseen["sample"]["num_stored"]) == (14, 12)
    assert not (tmp_path / "root").exists()


@pytest.mark.slow
def test_a_crash_is_found_where_masks_are_drawn(tmp_path: Path) -> None:
    """The shapes of an image may be longer than what a process can note of it."""
    source = write(tmp_path / "source", {f"{at}.png": png(at, 40, 60) for at in range(6)})
    write(source, {"bad.png": deed("abort")})
    many = [{"name": "cat", "rings": [[[1, 1], [30, 1 + at % 30], [30, 30]]]} for at in range(4_000)]
    images = {path.name: {"objects": many} for path in source.glob("*.png")}
    (source / drawn_shapes.FILE).write_text(json.dumps({"images": images}))
    settings = (f"source.kind={drawn_shapes.KIND}", "source.labels=mask", "source.masks.classes=['cat']")
    outcome = outcome_of(prepare(source, tmp_path / "root", *settings, "groups.near_duplicates=false"))
    assert outcome["quarantine"] == {"decoder_crashed": 1}
    assert lost(tmp_path / "root").keys() == {"bad.png"}
