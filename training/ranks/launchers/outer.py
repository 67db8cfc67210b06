"""Settings and exit statuses of ranks that an outer system starts, such as Slurm or Kubernetes.

    status  how a rank ended                            the outer system
    0       the run has finished                        is done
    75      a signal asked it to stop; it has saved     starts all ranks again, any number of times
    4       a rank, its machine or the network failed   starts all ranks again, a limited number of times
    2, 3    the settings or the data are wrong          ends the job
    130     stopped by a person                         ends the job

Any other status, also of a process that a signal killed, means that a machine failed, like 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shardmill.infra.errors import Cancelled, DataError, EnvironmentFault, Preempted, UsageError
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.training.ranks.devices import RankCount

PREEMPTED: Final = Preempted.exit_code
RANK_LOST: Final = EnvironmentFault.exit_code
# Starting again cannot mend these.
FINAL: Final = (UsageError.exit_code, DataError.exit_code, Cancelled.exit_code)


def joint_status(statuses: Iterable[int]) -> int:
    """Combine the exit statuses of several ranks into one; negative numbers are signals.

    A rank that is to blame by itself comes before those that were only asked to stop meanwhile.
    """
    found = set(statuses)
    for final in FINAL:
        if final in found:
            return final
    if found <= {0, PREEMPTED}:
        return PREEMPTED if PREEMPTED in found else 0
    return RANK_LOST


@dataclass(frozen=True, slots=True)
class OuterJob:
    """A training whose ranks an outer system starts.

    Attributes:
        name: the name of the run; also fit for the name of a job after it was cut.
        dataset: the version, ``name@version``.
        root: the folder of the datasets.
        runs: the folder of the runs, on storage that all machines share.
        config_json: the settings of a rank, as ``--config-json`` takes them.
        count: how many ranks may train.
        on_cpu: the ranks train on CPUs.
        stop_timeout_seconds: time for all ranks to save and end when a signal asks them to.
        preemption_signal: the name of a signal that asks them to, besides SIGTERM.
        max_restarts: restarts in a row that gain nothing.
    """

    name: str
    dataset: str
    root: str
    runs: str
    config_json: str
    count: RankCount
    on_cpu: bool
    stop_timeout_seconds: float
    preemption_signal: str
    max_restarts: int

    def command(
        self, python: str = "python", root: str | None = None, runs: str | None = None
    ) -> tuple[str, ...]:
        """Return the command of each rank.

        Args:
            python: the interpreter on the machines of the ranks.
            root: the folder of the datasets as they see it; None: as here.
            runs: the folder of the runs as they see it; None: as here.
        """
        return (
            *python_module("shardmill.training.train", self.dataset, python=python),
            *("--root", root or self.root, "--runs", runs or self.runs),
            *config_arguments(self.config_json),
            "--json",
        )


@dataclass(frozen=True, slots=True)
class JobFiles:
    """A job that an outer system can run.

    Attributes:
        files: the text of each file, by its name.
        submit: the command that hands the job over; an argument that is a file name stands for its path.
    """

    files: Mapping[str, str]
    submit: Sequence[str]
