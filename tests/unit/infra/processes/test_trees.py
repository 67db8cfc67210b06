"""Memory of a process tree: what processes share counts once, and what they no longer share in full."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from shardmill.infra.processes.trees import MemorySampler

_MIB = 1 << 20
# Fills 64 MiB, forks, and on a word each writes to all of it.
_FORKED = """
import os, sys
memory = bytearray(b"1") * (64 << 20)
words, theirs = os.pipe()
read, written = os.pipe()
if os.fork() == 0:
    os.read(words, 1)
    memory[::4096] = bytes(len(memory) // 4096)
    os.write(written, b"1")
    os.read(words, 1)
    os._exit(0)
print("forked", flush=True)
sys.stdin.readline()
os.write(theirs, b"1")
os.read(read, 1)
print("written", flush=True)
sys.stdin.readline()
os.write(theirs, b"1")
os.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux divides what is shared")
def test_what_a_forked_process_writes_to_is_counted_from_then_on() -> None:
    command = [sys.executable, "-c", _FORKED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sampler = MemorySampler(process.pid)
        assert process.stdout.readline() == "forked\n"
        for _ in range(20):
            sampler.sample()
        assert 64 * _MIB < sampler.peak_bytes < 120 * _MIB
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "written\n"
        for _ in range(20):
            sampler.sample()
        assert sampler.peak_bytes > 128 * _MIB
        process.stdin.write("go on\n")


class _Costly(MemorySampler):
    """A sampler whose samples take 2 ms of a processor."""

    taken = 0

    def sample(self) -> None:
        self.taken += 1
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass


def test_looking_takes_at_most_a_hundredth_of_a_processor() -> None:
    sampler, began = _Costly(0), time.monotonic()
    while time.monotonic() < began + 0.5:
        sampler.look()
    assert 1 <= sampler.taken <= 1 + (time.monotonic() - began) / 0.2
