"""Recognise that PyTorch found no memory for a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from shardmill.training.run.memory.fallback import does_not_fit

# What the allocators of CPUs say; PyTorch raises a plain RuntimeError there.
_OF_CPUS = ("defaultcpuallocator", "not enough memory", "can't allocate memory")


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Raise OutOfMemory if the block finds no memory, of the device or of the host."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise does_not_fit(str(error)) from error
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in _OF_CPUS):
            raise
        raise does_not_fit(str(error)) from error
