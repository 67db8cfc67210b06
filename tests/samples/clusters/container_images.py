"""The container images of infra/deploy/containers, built and run by buildah, which needs no engine.

Where the base image cannot be pulled, debootstrap makes one from Debian's packages.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CONTAINERS = Path(__file__).parents[3] / "infra" / "deploy" / "containers"
USER = 10001  # of the images, as the Containerfile says

_BUILD_SECONDS = 1500.0
_PULL_SECONDS = 60.0


@dataclass(frozen=True)
class Images:
    """The images of a store of their own.

    Attributes:
        store: folder of buildah's files.
    """

    store: Path

    def build(self, name: str) -> str:
        """Build the image of a requirement list; return its name."""
        image = f"shardmill-{name}:test"
        containerfile = CONTAINERS / "Containerfile"
        self._run(
            "build",
            "--pull-never",
            "--layers",
            "--file",
            containerfile,
            "--build-arg",
            f"FOR={name}",
            "--tag",
            image,
            CONTAINERS.parents[2],
        )
        return image

    def make_base(self, scratch: Path) -> None:
        """Pull the image that the Containerfile starts from, or make one of the same name."""
        lines = (CONTAINERS / "Containerfile").read_text().splitlines()
        (base,) = {line.split()[1] for line in lines if line.startswith("FROM ")}
        with contextlib.suppress(subprocess.SubprocessError):
            self._run("pull", "--quiet", base, timeout=_PULL_SECONDS)
            return
        if shutil.which("debootstrap") is None:
            pytest.skip(
                f"NO BASE IMAGE: {base} cannot be pulled, and there is no debootstrap (Debian) to make one"
            )
        files = _debian(scratch / "base")
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, files, "/")
        path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        self._run("config", "--env", f"PATH={path}", container)
        self._run("commit", "--quiet", "--rm", container, base)
        shutil.rmtree(files)

    @contextlib.contextmanager
    def container(self, image: str, volumes: Mapping[Path, str]) -> Iterator[Container]:
        """Make a container, and remove it with all that runs in it when the block ends.

        Args:
            image: its image.
            volumes: folder of this machine -> folder of the container; ``:ro`` after it: read-only.
        """
        one = Container(self, self._run("from", "--pull-never", image), dict(volumes))
        try:
            yield one
        finally:
            for process in one.processes:
                one.stop(process)
            self._run("rm", one.name)

    def command(self, *words: str | Path) -> list[str]:
        """A command of buildah on this store."""
        return [
            "buildah",
            "--root",
            str(self.store / "root"),
            "--runroot",
            str(self.store / "run"),
            *map(str, words),
        ]

    def run(self, *words: str | Path, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a command of buildah to its end, whatever its status."""
        command = self.command(*words)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=_environment()
        )

    def _run(self, *words: str | Path, timeout: float = _BUILD_SECONDS) -> str:
        """Run a command of buildah that must succeed; return the last line of its output."""
        done = self.run(*words, timeout=timeout)
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr[-4000:])
        return (done.stdout.splitlines() or [""])[-1]


@dataclass
class Container:
    """A container, which shares the network of this machine.

    Attributes:
        images: where its image is.
        name: its name.
        volumes: folder of this machine -> folder of the container.
        processes: those that were started in it and not awaited.
    """

    images: Images
    name: str
    volumes: Mapping[Path, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def says(self, *command: str, env: Mapping[str, str] | None = None, timeout: float = 600.0) -> str:
        """Run a command in the container, which must succeed; return its standard output."""
        done = self.run(*command, env=env, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, timeout: float = 600.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the container and wait for its end, whatever its status."""
        return self.images.run(*self._words(command, env or {}), timeout=timeout)

    def start(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command in the container; it runs until the container is removed."""
        with log.open("ab") as stream:
            process = subprocess.Popen(
                self.images.command(*self._words(command, env)),
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Ask a process and all below it to end, and kill what remains."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
                return

    def _words(self, command: Sequence[str], env: Mapping[str, str]) -> list[str]:
        volumes = [f"--volume={folder}:{place}" for folder, place in self.volumes.items()]
        variables = [f"--env={name}={value}" for name, value in env.items()]
        return ["run", *volumes, *variables, self.name, "--", *command]


@contextlib.contextmanager
def images_in(folder: Path) -> Iterator[Images]:
    """A store of images with the base image; removed when the block ends."""
    if shutil.which("buildah") is None or os.getuid() != 0:
        pytest.skip("NO BUILDAH: install buildah (Debian), and run as root, to build the container images")
    images = Images(folder / "store")
    try:
        images.make_base(folder)
        yield images
    finally:
        for words in (["rm", "--all"], ["rmi", "--all", "--force"]):
            images.run(*words, timeout=_BUILD_SECONDS)


def folder_of_the_user(folder: Path) -> Path:
    """Make a folder that belongs to the user of the images."""
    folder.mkdir(parents=True)
    os.chown(folder, USER, USER)
    return folder


def _environment() -> dict[str, str]:
    # Isolation by chroot needs neither an engine nor namespaces.
    return {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}


def _debian(folder: Path) -> Path:
    """Make the files of a small Debian with Python, which trusts the certificates of this machine."""
    words = [
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-venv,ca-certificates",
        "bookworm",
        str(folder),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    certificates = ssl.get_default_verify_paths().cafile
    if certificates is not None:
        shutil.copyfile(certificates, folder / "etc/ssl/certs/ca-certificates.crt")
    return folder
