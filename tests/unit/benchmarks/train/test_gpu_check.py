"""The GPU check without a GPU: reading, the bundle, and parts that fail or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from tests.benchmarks.train.gpu_check.bundle import DATASET, install, missing_packages
from tests.benchmarks.train.gpu_check.rows import Row
from tests.benchmarks.train.gpu_check.running import run_part
from tests.samples.datasets.published import coloured, publish

REPOSITORY = Path(__file__).parents[4]
ROW = Row("reading", 1234.5, wait_ms=0.25)
HANGING = f"""
import subprocess, sys, time
print("a library says something")
print({ROW.to_line()!r}, flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(600)
"""
FAILING = f"print({ROW.to_line()!r}); raise SystemExit('no such device')"


def rows(program: str, folder: Path, seconds: float) -> list[Row]:
    argv = [sys.executable, "-c", program, str(folder / "child")]
    return list(run_part("part", argv, folder, seconds, os.environ))


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_part_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    measured, failed = rows(HANGING, tmp_path, 5)
    assert measured == ROW
    assert failed == Row("part", note="FAILED: stopped after 5 s: it said nothing")
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_a_part_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(FAILING, tmp_path, 60) == [ROW, Row("part", note="FAILED: status 1: no such device")]
    assert capsys.readouterr().out == "no such device\n"


def test_rates_are_compared() -> None:
    row = Row("loader", 900.0, gpu_bytes=2_000_000_000, note="8 workers").compared(Row("limit", 1000.0))
    assert row.cells() == ["loader", "900", "0.90 of limit", "", "", "2.0", "", "8 workers"]
    assert Row("loader", 900.0).compared(Row("limit")) == Row("loader", 900.0)


def test_wheels_are_what_the_machine_lacks() -> None:
    packages = missing_packages()
    assert {"pydantic", "pydantic-core", "obstore", "simplejpeg", "tensorboard"} <= packages.keys()
    assert not {"numpy", "torch", "pyarrow", "grpcio", "apache-beam"} & packages.keys()


def test_wheels_are_unpacked_beside_the_environment(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    for name, version in (("never_heard_of", "1.0"), ("numpy", "1.0"), ("psutil", "7000.10")):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            about = f"{name}-{version}.dist-info"
            wheel.writestr(f"{name}.py", "")
            wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{about}/RECORD", "")
    assert install(tmp_path, tmp_path / "site") == ["never-heard-of", "psutil"]
    assert (tmp_path / "site" / "never_heard_of.py").exists()
    assert not (tmp_path / "site" / "numpy.py").exists()


def check(bundle: Path, *more: str) -> subprocess.CompletedProcess[str]:
    publish(bundle / "datasets", coloured({"train": {"a": 20, "b": 20}}, size=(64, 80)), name=DATASET)
    argv = [sys.executable, "-m", "tests.benchmarks.train.gpu_check", "--bundle", str(bundle)]
    argv += ["--device", "cpu", "--out", str(bundle / "out"), *more]
    return subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)


def test_reading_is_measured(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "read,jax", "--minutes", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out" / "gpu-check.json").read_text())
    assert found["machine"].startswith("CPU only")
    limit, batches, arrays = found["rows"]
    assert limit["images_per_second"] > 0
    assert (arrays["what"], arrays["images_per_second"] > 0) == ("JAX, into the device", True)
    assert arrays["beside"] == batches["beside"] == limit["what"] == "decoder alone"
    assert batches["ratio"] == pytest.approx(batches["images_per_second"] / limit["images_per_second"])
    machine, _, head, rule, *lines = (tmp_path / "out" / "gpu-check.md").read_text().splitlines()
    assert (machine, len(lines)) == (found["machine"], 3)
    assert "images/s" in head
    assert set(rule) == set("|-")
    assert all(line in done.stdout for line in lines)


def test_the_whole_ends_in_its_time(tmp_path: Path) -> None:
    done = check(tmp_path, "--only", "read", "--minutes", "0.01")
    assert done.returncode == 1
    assert "FAILED" in done.stdout
