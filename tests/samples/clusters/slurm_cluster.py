"""A real Slurm with two nodes on this machine, for tests: munged, slurmctld and two slurmd of their own.

The nodes have loopback addresses as names, so that a rank finds the first node by its name. It runs as the
user of the tests, with free ports, in a folder of its own.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from shardmill.infra.processes.ports import free_ports
from tests.samples.waiting import eventually

NODES = ("127.0.0.1", "127.0.0.2")
# States that a job does not leave.
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

_CONFIGURATION = """\
ClusterName=shardmill
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=2
KillWait=10
NodeName={nodes[0]} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=4000
NodeName={nodes[1]} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs() -> str | None:
    """Say which programs of Slurm this machine lacks, and how to get them; None: it has all."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if not missing:
        return None
    return f"{', '.join(missing)} not found: apt-get install slurmctld slurmd slurm-client munge"


class SlurmCluster:
    """A running cluster.

    Attributes:
        environment: variables with which programs of Slurm find it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start the servers, and wait until both nodes take jobs."""
        folder = self._folder
        (folder / "state").mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        text = _CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            user=getpass.getuser(),
            folder=folder,
            nodes=NODES,
            ports=free_ports(3),
        )
        (folder / "slurm.conf").write_text(text)
        munge = [f"--{name}={folder}/munge.{name[:-5]}" for name in ("pid-file", "log-file", "seed-file")]
        munge += [f"--key-file={key}", f"--socket={folder}/munge.socket"]
        self._serve("munged", "--foreground", "--force", *munge)
        assert eventually((folder / "munge.socket").exists), self._logs()
        self._serve("slurmctld", "-D", "-c")
        for node in NODES:
            self._serve("slurmd", "-D", "-N", node)
        assert eventually(lambda: self._idle() == len(NODES), every=0.2), self._logs()

    def submit(self, script: Path, output: Path) -> int:
        """Submit a batch script, and return the number of its job."""
        return int(self.run("sbatch", "--parsable", f"--output={output}", str(script)))

    def state(self, job: int) -> dict[str, str]:
        """Return Slurm's record of a job: field -> value."""
        words = self.run("scontrol", "--oneliner", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: int, *states: str, seconds: float = 300.0) -> dict[str, str]:
        """Wait until a job is in one of the states, and return the fields of Slurm's answer.

        Raises:
            AssertionError: it ended in another state, or ``seconds`` were not enough.
        """
        awaited = {*states, *ENDED}
        reached = eventually(lambda: self.state(job)["JobState"] in awaited, seconds, every=0.3)
        state = self.state(job)
        assert reached, f"{state}\n{self._logs()}"
        assert state["JobState"] in states, f"{state}\n{self._logs()}"
        return state

    def start_again_now(self, job: int) -> None:
        """Wait until a job is queued again, and start it before the two minutes that Slurm would wait.

        It starts a few seconds later: within the second in which the last try ended, a node takes the new try
        for the ended one and refuses it ("already killed, do not launch batch job").
        """
        self.wait(job, "PENDING")
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+5seconds")
        self.wait(job, "RUNNING")

    def run(self, *command: str) -> str:
        """Run a program of Slurm, and return what it prints."""
        done = self._done(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def processes(self) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
        """Yield all processes of this cluster, also those of its jobs, with their variables."""
        for process in psutil.process_iter():
            try:
                variables = process.environ()
            except (psutil.Error, OSError):
                continue
            if variables.get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                yield process, variables

    def stop(self) -> None:
        """End all jobs and the servers."""
        # A slurmstepd hides its variables, and outlives the servers if its job was not over.
        if self._try("scancel", "--full", f"--user={getpass.getuser()}") is not None:
            eventually(lambda: self._try("squeue", "--noheader") in ("", None), every=0.3)
        for number in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + 10
            while (found := [process for process, _ in self.processes()]) and time.monotonic() < end:
                for process in found:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)
                time.sleep(0.5)
        assert not list(self.processes())
        for server in self._servers:
            server.wait(timeout=10)

    def _serve(self, program: str, *arguments: str) -> None:
        with (self._folder / "servers.log").open("ab") as log:
            self._servers.append(
                subprocess.Popen(
                    [program, *arguments],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _idle(self) -> int:
        return (self._try("sinfo", "--noheader", "--Node", "--format=%t") or "").split().count("idle")

    def _try(self, *command: str) -> str | None:
        """Run a program of Slurm, and return what it prints; None: it failed."""
        done = self._done(*command)
        return done.stdout.strip() if done.returncode == 0 else None

    def _done(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def _logs(self) -> str:
        return (self._folder / "servers.log").read_text()


@contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster, from its start to the end of its last process."""
    # Not below the folder of a test: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="shardmill-slurm-") as folder:
        Path(folder).chmod(0o755)
        cluster = SlurmCluster(Path(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
