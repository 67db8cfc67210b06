"""No traceback if nobody reads what a command prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.infra.processes.process import describe_status


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "status 1"), (-signal.SIGSEGV, "SIGSEGV"), (-signal.SIGRTMIN - 6, f"signal {signal.SIGRTMIN + 6}")],
)
def test_a_status_in_words(status: int, words: str) -> None:
    assert describe_status(status) == words


WRITES = "from shardmill.infra.processes.process import guard_standard_streams as g; g(); import sys; "


def run_shell(tmp_path: Path, program: str, redirection: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(program)
    command = f'"{sys.executable}" "{script}" {redirection}'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    program = WRITES + "print('x', flush=True); print('y', file=sys.stderr); open('/dev/null'); sys.exit(7)"
    done = run_shell(tmp_path, program, "<&- >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_a_result_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    program = WRITES + (
        "from shardmill.infra.errors import EnvironmentFault\n"
        "try:\n    print('x', flush=True)\n"
        "except EnvironmentFault as error:\n    print(error.message, file=sys.stderr)"
    )
    done = run_shell(tmp_path, program, "> /dev/full")
    assert done.stderr == "standard output cannot be written to: No space left on device\n"
    assert done.returncode == 0, "and it is told once, not again when the interpreter ends"


def test_progress_that_cannot_be_shown_is_no_error(tmp_path: Path) -> None:
    program = WRITES + "print('y', file=sys.stderr, flush=True); print('x', flush=True)"
    done = run_shell(tmp_path, program, "2> /dev/full")
    assert (done.returncode, done.stdout) == (0, "x\n")


def run_without_reader(command: list[str]) -> tuple[int, str]:
    """(exit status, standard error) of a command whose standard output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "body",
    [
        "print('x', flush=True)",
        "print('x')",
        "import argparse; argparse.ArgumentParser().parse_args(['--help'])",
    ],
)
def test_a_reader_that_goes_away_ends_a_command_quietly(body: str) -> None:
    program = "import sys; from shardmill.infra.processes.process import run_main\n"
    program += f"def main():\n    {body}\n    return 0\n"
    assert run_without_reader([sys.executable, "-c", program + "sys.exit(run_main(main))"]) == (141, "")


def test_every_job_guards_its_streams() -> None:
    for module in ("shardmill.beam_jobs.prepare", "shardmill.training.train"):
        assert run_without_reader([sys.executable, "-m", module, "--help"]) == (141, ""), module
