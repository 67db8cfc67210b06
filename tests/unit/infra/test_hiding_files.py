"""Files of a user on PYTHONPATH that hide modules of Python and of libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.infra.errors import ConfigError
from shardmill.infra.processes.children import run_child
from shardmill.infra.processes.job_command import python_module

ROOT = Path(__file__).parents[3]
COMMAND = "import sys\nfrom shardmill.flows.cli import main\nmain(['prepare', '--help'])\n"
PREPARE = python_module("shardmill.beam_jobs.prepare", "photos", "--dataset", "d", "--root", "root")


def console_script(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = folder / "bin/shardmill"
    script.parent.mkdir()
    script.write_text(COMMAND)
    given = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **variables}
    return subprocess.run([sys.executable, script], env=given, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("random.py", "x = 1\n", "random of Python, and something failed there: "),
        ("random.py", "1 +\n", "random of Python, and something failed there: SyntaxError"),
        ("pathlib.py", "x = 1\n", "pathlib of Python, and something failed there: "),
        (
            "ipaddress.py",
            "raise KeyError('mine')\n",
            "ipaddress of Python, and something failed there: KeyError",
        ),
        ("typing_extensions/__init__.py", "raise KeyError('mine')\n", "/typing_extensions.py, and something"),
    ],
)
def test_the_error_of_the_command_names_the_hiding_file(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    hiding = tmp_path / "code" / name
    hiding.parent.mkdir(parents=True)
    hiding.write_text(text)
    done = console_script(tmp_path, PYTHONPATH=f"{tmp_path / 'code'}:{ROOT}")
    assert done.returncode == 2, done.stderr
    # Python itself complains before this where the project is installed in editable mode.
    assert f"\nerror: {hiding} hides " in f"\n{done.stderr}"
    assert said in done.stderr
    assert "remedy: give your file another name" in done.stderr


@pytest.mark.parametrize(("name", "text"), [("numpy.py", "x = 1\n"), ("random.py", "Random = 3\n")])
def test_a_parent_hears_from_its_child_which_file_hides_what(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    child = run_child(PREPARE, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, cwd=tmp_path)
    with pytest.raises(ConfigError, match=f"{name} hides ") as caught:
        child.raise_for_status()
    assert str(tmp_path / name) in caught.value.message


def test_other_defects_keep_their_traceback(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text(Path(json.__file__).parents[1].joinpath("random.py").read_text())
    script = tmp_path / "bin/shardmill"
    script.parent.mkdir()
    script.write_text("import shardmill\nimport random\nraise KeyError('ours')\n")
    variables = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True)
    assert done.returncode == 1
    assert "KeyError: 'ours'" in done.stderr
    assert "error: " not in done.stderr


def test_files_of_the_working_folder_hide_nothing_from_a_child(tmp_path: Path) -> None:
    for name in ("random.py", "numpy.py", "socket.py"):
        (tmp_path / name).write_text("raise RuntimeError('imported')\n")
    (tmp_path / "shardmill/beam_jobs").mkdir(parents=True)
    (tmp_path / "training/cat").mkdir(parents=True)
    child = run_child(PREPARE, cwd=tmp_path)
    with pytest.raises(Exception, match="photos"):
        child.raise_for_status()


def test_a_program_of_the_user_is_told_what_its_neighbour_hides(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("x = 1\n")
    (tmp_path / "train.py").write_text("from shardmill import open_dataset\n")
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"],
        env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"ImportError: {tmp_path / 'random.py'} hides random of Python: " in done.stderr
