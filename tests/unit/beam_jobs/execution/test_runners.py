"""Names of runners, and the number of processes of their pools."""

from __future__ import annotations

import pytest

from beam_jobs.config import RunnerConfig
from beam_jobs.execution.runners import check_runner, num_processes
from infra.errors import ConfigError
from infra.processes.process import num_cpus


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("DaskRunner", "wrong results"),
        ("dask", "wrong results"),
        ("DirectRunner", "Prism, which downloads"),
        ("direct", "Prism, which downloads"),
        ("PrismRunner", "did you mean 'prism'"),
        ("prism", "runner.prism_program"),
        ("embeded", "did you mean 'embedded'"),
        ("slurm", "there are: embedded"),
    ],
)
def test_runners_that_are_not_ours(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_runner(RunnerConfig(name=name))
    assert says in str(caught.value)


def test_processes() -> None:
    assert num_processes(RunnerConfig(processes=3)) == 3
    assert num_processes(RunnerConfig()) == num_cpus()
    assert num_processes(RunnerConfig(name="portable")) == 1
