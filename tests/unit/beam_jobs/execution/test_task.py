"""Errors on their way through a runner."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.execution.task import CarriedFault, carry_faults, recover_fault
from shardmill.infra.errors import StorageError


def test_faults_survive_a_runner() -> None:
    with pytest.raises(CarriedFault) as caught, carry_faults():
        raise StorageError("disk full: 'a\nb'", "free some")
    relayed = RuntimeError(
        f"Traceback ...\nbeam_jobs.execution.errors.CarriedFault: {caught.value} [while running 'X']"
    )
    fault = recover_fault(relayed)
    assert isinstance(fault, StorageError)
    assert (fault.message, fault.remedy) == ("disk full: 'a\nb'", "free some")
    assert recover_fault(RuntimeError("a defect")) is None
    with pytest.raises(CarriedFault, match="No space"), carry_faults():
        raise OSError(28, "No space left on device")
    with pytest.raises(KeyError), carry_faults():
        raise KeyError("a defect stays what it is")
