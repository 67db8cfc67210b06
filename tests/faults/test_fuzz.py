"""Damaged images and sources by the thousand: none crashes or hangs, each has its outcome and reason."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from shardmill.beam_jobs.reasons import REASONS
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.format.contract import QUARANTINED, RECORD
from tests.samples.images.mutants import FORMATS, mutant
from tests.samples.images.photos import write
from tests.samples.preparing.command import prepare_command
from tests.samples.sources.mutants import SAMPLES

REPOSITORY = Path(__file__).parents[2]
# Not among those of damaged images: the guard's reasons, and a library's failure that nobody foresaw.
UNFORESEEN = {"unprocessable", "decoder_crashed", "decoder_hung", "decoder_out_of_memory"}
COUNTS = [200, pytest.param(10_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
def test_no_damage_brings_the_conversion_down(count: int) -> None:
    argv = [sys.executable, "-m", "tests.samples.images.mutants", "0", str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=500, check=False, cwd=REPOSITORY)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"mutant {lines[-1]} ended the process: {done.stderr[-2000:]}"
    outcomes = Counter(line.split(maxsplit=1)[1] for line in lines)
    assert sum(outcomes.values()) == count
    assert set(outcomes) <= {"stored", *REASONS} - UNFORESEEN
    # Damage that is too mild or too coarse would test little.
    assert 0.1 < outcomes["stored"] / count < 0.6
    assert {"truncated", "corrupt", "too_many_pixels", "unknown_format"} <= set(outcomes)


@pytest.mark.parametrize("count", COUNTS)
def test_prepare_accounts_for_every_damaged_image(count: int, tmp_path: Path) -> None:
    names = [f"{FORMATS[number % len(FORMATS)]}/{number:05d}" for number in range(count)]
    source = write(tmp_path / "source", {name: mutant(number) for number, name in enumerate(names)})
    argv = prepare_command(source, tmp_path / "root")
    argv += ["--json", "--failure-budget", "1", "--set", "image.max_pixels=4000000", "--set", "image.size=48"]
    argv += ["--set", "image.metadata=all", "--set", "filter.ai_made=drop"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["num_inputs"] == count
    catalog = Catalog(str(tmp_path / "root"))
    inputs = catalog.open("d").inputs().to_pylist()
    assert sorted(row["uri"] for row in inputs) == sorted(names)
    accounting = catalog.open("d").manifest.accounting
    assert accounting.num_records == sum(row["outcome"] == RECORD for row in inputs) > 0.1 * count
    lost = [row for row in inputs if row["outcome"] == QUARANTINED]
    assert accounting.num_quarantined == len(lost)
    for row in lost:
        assert row["reason"] in set(REASONS) - UNFORESEEN, row
        assert len(row["message"]) > 10, row
    assert not verify(catalog.open("d")).problems


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_no_damage_of_a_source_ends_in_a_traceback(count: int) -> None:
    argv = [sys.executable, "-m", "tests.samples.sources.mutants", "0", str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False, cwd=REPOSITORY)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1]} ended the process: {done.stderr[-2000:]}"
    said = [line.split(": ", 1)[1] for line in lines]
    assert not [line for line in lines if "CRASH" in line or "SILENT" in line]
    # Every kind of source; most of the damages cost rows, not the whole source.
    assert len(said) == count * len(SAMPLES)
    assert said.count("ok") > 0.4 * len(said)
