"""The number of ranks, and the device of each: a GPU, or a part of the CPU. No TensorFlow."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from shardmill.infra.processes.process import num_cpus

_WORKERS = re.compile(r"([1-9]\d*)(?:\.\.([1-9]\d*))?")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one rank.

    Attributes:
        name: for people.
        gpu: the value of ``CUDA_VISIBLE_DEVICES``; None: the rank trains on the CPU.
    """

    name: str
    gpu: str | None = None

    def environment(self, num_ranks: int) -> dict[str, str]:
        """Return the variables of a process that sees this device alone, and shares the host's cores.

        Args:
            num_ranks: the ranks on this machine.
        """
        variables = {"CUDA_VISIBLE_DEVICES": self.gpu or "-1"}
        if self.gpu is None and "TF_NUM_INTRAOP_THREADS" not in os.environ:
            variables["TF_NUM_INTRAOP_THREADS"] = str(max(1, num_cpus() // num_ranks))
        return variables


@dataclass(frozen=True, slots=True)
class RankCount:
    """How many ranks may train: ``N`` or ``MIN..MAX``."""

    least: int
    most: int

    @staticmethod
    def parse(text: str) -> RankCount:
        """Parse ``N`` or ``MIN..MAX``.

        Raises:
            ValueError: the text is something else.
        """
        found = _WORKERS.fullmatch(text.strip())
        if found is None:
            raise ValueError("must be a number of ranks, or a range such as 2..4")
        least = int(found[1])
        most = int(found[2] or least)
        if most < least:
            raise ValueError(f"the range begins above its end; write {most}..{least}")
        return RankCount(least, most)
