"""The sandbox: how each way to end shows, and what a trial proves against a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shardmill.beam_jobs.execution.pool.limits import Watch, is_out_of_memory
from shardmill.beam_jobs.execution.pool.sandbox import Ending, call_in_sandbox, try_alone
from shardmill.beam_jobs.execution.task import Limits
from shardmill.infra.codecs import ImageRejected
from tests.samples.images import decoders

LIMITS = Limits(seconds=1.0, memory_bytes=128 << 20)


@pytest.mark.parametrize(
    ("call", "data", "ending"),
    [
        (decoders.misbehaving, b"fine", "returned"),
        (decoders.refuse, b"", "raised"),
        (decoders.abort, b"", "died"),
        (decoders.leave, b"", "died"),
        (decoders.hang, b"", "hung"),
        (decoders.spin, b"", "hung"),
        (decoders.need_memory, b"64", "returned"),
        (decoders.need_memory, b"256", "got_no_memory"),
    ],
)
def test_every_ending_shows(call: Callable[[bytes], object], data: bytes, ending: Ending) -> None:
    assert call_in_sandbox(call, data, LIMITS).ending == ending


def test_the_value_comes_back_and_the_memory_is_told() -> None:
    trial = call_in_sandbox(decoders.need_memory, b"64", LIMITS)
    assert trial.value == 64 << 20
    assert 60 << 20 < trial.memory_bytes < 80 << 20


def test_the_environment_is_that_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server from which it is forked may be older than the token of a store."""
    assert call_in_sandbox(decoders.variable, b"TOKEN_OF_A_STORE", LIMITS).value is None
    monkeypatch.setenv("TOKEN_OF_A_STORE", "new")
    assert call_in_sandbox(decoders.variable, b"TOKEN_OF_A_STORE", LIMITS).value == "new"


def test_a_large_file_passes() -> None:
    trial = call_in_sandbox(decoders.misbehaving, bytes(40 << 20), LIMITS)
    assert trial.value[0]["width"] == 40 << 20


def test_nothing_is_written(tmp_path: Path) -> None:
    target = tmp_path / "written"
    assert call_in_sandbox(decoders.write, str(target).encode(), LIMITS).ending in ("raised", "died")
    assert not target.exists() or target.stat().st_size == 0


@pytest.mark.parametrize(
    ("decode", "data", "reason"),
    [
        (decoders.misbehaving, b"fine", None),
        (decoders.refuse, b"", None),
        (decoders.abort, b"", "decoder_crashed"),
        (decoders.leave, b"", "decoder_crashed"),
        (decoders.hang, b"", "decoder_hung"),
        (decoders.need_memory, b"256", "decoder_out_of_memory"),
        (decoders.crash_without_memory, b"200", "decoder_out_of_memory"),
        (decoders.crash_without_memory, b"900", "decoder_crashed"),
        (decoders.kill, b"", "decoder_out_of_memory"),
    ],
)
def test_what_a_trial_proves(decode: Callable[[bytes], object], data: bytes, reason: str | None) -> None:
    assert try_alone(decode, data, LIMITS)[0] == reason


def test_waiting_for_a_processor_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock says that the file took long, and the kernel that its process waited as long."""
    since = time.monotonic() - 5.0
    watch = Watch(os.getpid(), Limits(1.0, 1 << 40))
    assert watch.excess(None) is None
    waited = iter([0, 4_900_000_000])
    read_text = Path.read_text

    def told(path: Path, *arguments: str, **options: str) -> str:
        if path.name == "schedstat":
            return f"1 {next(waited)} 1"
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", told)
    assert watch.excess(since) is None
    monkeypatch.undo()
    assert watch.excess(since - 1) == "time"


def wrapped(cause: Exception) -> Exception:
    error = ImageRejected("corrupt", "not sound")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (wrapped(MemoryError()), True),
        (OSError("out of memory error when reading image file"), True),
        (RuntimeError("Insufficient memory (case 4)"), True),
        (ImageRejected("corrupt", "damaged"), False),
        (wrapped(ValueError("broken")), False),
    ],
)
def test_errors_that_mean_no_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
