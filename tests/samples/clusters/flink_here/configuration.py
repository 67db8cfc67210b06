"""Flink's configuration: the file, hosts files, and the commands of its processes.

All sizes of memory are given one by one, so none of Flink's start scripts is needed.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.processes.job_command import python_module
from tests.samples.clusters.flink_here.jars import Jars

LOOPBACK = "127.0.0.1"
_MIB = 1 << 20
_JOB_MANAGER_HEAP = 512 * _MIB
_JOB_SERVER_HEAP = 512 * _MIB
_FRAMEWORK_HEAP, _TASK_HEAP = 128 * _MIB, 384 * _MIB
_OFF_HEAP, _NETWORK, _MANAGED, _METASPACE, _OVERHEAD = (
    128 * _MIB,
    64 * _MIB,
    128 * _MIB,
    256 * _MIB,
    192 * _MIB,
)

# Without a strategy a job fails with the first worker or TaskManager that dies.
_NO_RESTARTS = "restart-strategy.type: none\n"
_RESTARTS = """\
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 10
restart-strategy.fixed-delay.delay: 2 s
"""

# Flink's own list for Java 17, of those that a job of Beam meets.
_OPENED = (
    "lang net io nio lang.reflect text time util util.concurrent util.concurrent.atomic util.concurrent.locks"
)
_OPENS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED.split()] + [
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
]


@dataclass(frozen=True)
class Layout:
    """One cluster: its places.

    Attributes:
        folder: holds its files.
        task_managers: how many.
        slots: of each TaskManager, tasks that it runs at a time.
        rest_port: of the JobManager.
        rpc_port: of the JobManager, for the TaskManagers.
        job_port: of Beam's job server.
        worker_port: of each pool of Python workers, at the address of its TaskManager.
        restarts_jobs: whether Flink restarts a job whose worker or TaskManager died.
    """

    folder: Path
    task_managers: int
    slots: int
    rest_port: int
    rpc_port: int
    job_port: int
    worker_port: int
    restarts_jobs: bool = True

    @property
    def flink_master(self) -> str:
        """HOST:PORT of the JobManager's REST interface."""
        return f"{LOOPBACK}:{self.rest_port}"

    @property
    def job_endpoint(self) -> str:
        """HOST:PORT of Beam's job server."""
        return f"{LOOPBACK}:{self.job_port}"

    def host(self, number: int) -> str:
        """Address of the TaskManager of this number (from 0) and of its pool of workers."""
        return f"127.0.0.{2 + number}"

    @property
    def conf_folder(self) -> Path:
        """Folder of Flink's configuration."""
        return self.folder / "conf"


def write_configuration(layout: Layout) -> None:
    """Write config.yaml, log4j.properties and the hosts files."""
    conf = layout.conf_folder
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "config.yaml").write_text(flink_configuration(layout))
    log4j = Path(__file__).with_name("log4j.properties")
    (conf / "log4j.properties").write_text(log4j.read_text())
    for number in range(layout.task_managers):
        host = layout.host(number)
        _hosts_file(layout, number).write_text(f"{host} localhost\n{host} {socket.gethostname()}\n")


def flink_configuration(layout: Layout) -> str:
    """The text of config.yaml."""
    temporary = layout.folder / "tmp"
    return f"""\
jobmanager.rpc.address: {LOOPBACK}
jobmanager.rpc.port: {layout.rpc_port}
jobmanager.bind-host: {LOOPBACK}
rest.address: {LOOPBACK}
rest.bind-address: {LOOPBACK}
rest.port: {layout.rest_port}
io.tmp.dirs: {temporary}
blob.storage.directory: {temporary}
env.log.dir: {layout.folder / "log"}

taskmanager.numberOfTaskSlots: {layout.slots}
taskmanager.cpu.cores: {layout.slots}
taskmanager.memory.framework.heap.size: {_FRAMEWORK_HEAP}b
taskmanager.memory.framework.off-heap.size: {_OFF_HEAP}b
taskmanager.memory.task.heap.size: {_TASK_HEAP}b
taskmanager.memory.task.off-heap.size: 0b
taskmanager.memory.network.min: {_NETWORK}b
taskmanager.memory.network.max: {_NETWORK}b
taskmanager.memory.managed.size: {_MANAGED}b
taskmanager.memory.jvm-metaspace.size: {_METASPACE}b
taskmanager.memory.jvm-overhead.min: {_OVERHEAD}b
taskmanager.memory.jvm-overhead.max: {_OVERHEAD}b

parallelism.default: {layout.task_managers * layout.slots}
cluster.evenly-spread-out-slots: true
heartbeat.interval: 2000
heartbeat.timeout: 30000

{_RESTARTS if layout.restarts_jobs else _NO_RESTARTS}"""


def job_manager_command(java: str, jars: Jars, layout: Layout) -> list[str]:
    """The command of the JobManager."""
    memory = [f"-Xmx{_JOB_MANAGER_HEAP}", f"-XX:MaxMetaspaceSize={_METASPACE}"]
    main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    return _flink(java, jars, layout, memory, [main, "--executionMode", "cluster"])


def task_manager_command(java: str, jars: Jars, layout: Layout, number: int) -> list[str]:
    """The command of the TaskManager of this number (from 0)."""
    host = layout.host(number)
    memory = [
        f"-Xmx{_FRAMEWORK_HEAP + _TASK_HEAP}",
        f"-XX:MaxDirectMemorySize={_OFF_HEAP + _NETWORK}",
        f"-XX:MaxMetaspaceSize={_METASPACE}",
        f"-Djdk.net.hosts.file={_hosts_file(layout, number)}",
    ]
    own = [f"taskmanager.host={host}", f"taskmanager.bind-host={host}"]
    main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
    return _flink(java, jars, layout, memory, [main, *(word for one in own for word in ("-D", one))])


def job_server_command(java: str, jars: Jars, layout: Layout) -> list[str]:
    """The command of Beam's job server."""
    return [
        java,
        f"-Xmx{_JOB_SERVER_HEAP}",
        *_OPENS,
        "-cp",
        f"{jars.job_server}/*",
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
        f"--job-host={LOOPBACK}",
        f"--job-port={layout.job_port}",
        "--artifact-port=0",
        "--expansion-port=0",
        f"--flink-master={layout.flink_master}",
        f"--artifacts-dir={layout.folder / 'artifacts'}",
    ]


def worker_pool_command(layout: Layout, number: int) -> list[str]:
    """The command of the pool of Python workers of a TaskManager (from 0)."""
    address = f"{layout.host(number)}:{layout.worker_port}"
    return python_module("shardmill.beam_jobs.worker_pool", "--listen", address)


def _flink(java: str, jars: Jars, layout: Layout, memory: Sequence[str], main: Sequence[str]) -> list[str]:
    log4j = f"-Dlog4j.configurationFile=file:{layout.conf_folder / 'log4j.properties'}"
    name, *arguments = main
    conf = ["--configDir", str(layout.conf_folder)]
    return [java, *memory, *_OPENS, log4j, "-cp", f"{jars.flink}/*", name, *conf, *arguments]


def _hosts_file(layout: Layout, number: int) -> Path:
    return layout.conf_folder / f"hosts-{number + 1}"
