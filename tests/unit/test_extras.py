"""What is not installed is named, with the command that installs it; the base reads without the rest."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shardmill
from shardmill.flows.cli import root
from shardmill.flows.cli.tree import all_commands
from shardmill.infra.extras import LIBRARIES
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.photos import make_photos
from tests.samples.installations import PROJECT, closure, installation
from tests.samples.training.finished_runs import FinishedRuns


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the base alone, beside photographs, a dataset and a run."""
    folder = tmp_path_factory.mktemp("base")
    make_photos(folder / "photos", {"cat": 3, "dog": 3})
    FinishedRuns(folder, num_judged=4).run("run", 1, lambda rows: rows % 2 == 0)
    return installation(folder / "environment")


def ran(python: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter in the folder of its environment, with nothing of this environment."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "PREFECT", "SHARDMILL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    folder = python.parents[2]
    env |= {"HOME": str(folder), **variables}
    return subprocess.run(
        [python, *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )


# Every command, with the extra that it lacks in an environment with the base alone; None: it needs none.
COMMANDS: dict[str, list[tuple[str, str | None]]] = {
    "compare": [("run run", None)],
    "compact": [("set", "prepare")],
    "datasets": [("", None)],
    "demo": [("", "all")],
    "diff": [("set@1 set@2", None)],
    "down": [("", None)],
    "evaluate": [("run", "tensorflow")],
    "export": [("set out", None), ("set more --format array_record", "array_record")],
    "gc": [("set", None)],
    "label-errors": [("set", "tensorflow")],
    "locate": [("set --record 0123456789abcdef", None)],
    "model aliases": [("", None)],
    "model promote": [("run", None)],
    "model rollback": [("set", None)],
    "notify": [("", None)],
    "platform backup": [("copy", None)],
    "platform deploy": [("", "platform")],
    "platform down": [("", None)],
    "platform page": [("", "platform")],
    "platform reap": [("", None)],
    "platform restore": [("copy", None)],
    "platform server": [("migrate --database postgresql+asyncpg://a:b@localhost:1/c", "platform")],
    "platform status": [("", None)],
    "platform up": [("", "platform")],
    "plugins": [("", None)],
    "predict": [("run photos", "tensorflow")],
    "prepare": [("photos --dataset d", "prepare"), ("photos --dataset d --dry-run", "prepare")],
    "profile": [("set", "tensorflow")],
    "purge": [("set --source none.jpg", None)],
    "push": [("set hf://datasets/me/set", "hub")],
    "report": [("set", None)],
    "review decide": [("set 0123456789abcdef keep", None)],
    "review export": [("set decisions.csv", None)],
    "review import": [("set none.csv", None)],
    "review list": [("set", None)],
    "rm": [("set@1", None)],
    "rollback": [("set@1", None)],
    "run": [("photos --dataset d", "prepare")],
    "runs": [("", None)],
    "schedule add": [("photos --dataset d", None)],
    "schedule list": [("", None)],
    "schedule pause": [("--dataset d", None)],
    "schedule remove": [("--dataset d", None)],
    "schedule resume": [("--dataset d", None)],
    "settings": [("", None), ("source.kind", None)],
    "show": [("set", None), ("set --parser", None)],
    "sign": [("set --key none.pem", "signing")],
    "status": [("", None)],
    "train": [
        ("set", "tensorflow"),
        ("set --framework torch", "torch"),
        ("set --launcher kubernetes --workers 2", "tensorflow"),
        ("set --launcher kubernetes --workers 2 --framework torch", "torch"),
    ],
    "up": [("", "platform")],
    "verify": [("set", None)],
    "versions": [("set", None)],
}
# Runs each command line of its argument in a process of its own, without loading Python again.
EACH = """
import json, os, sys, tempfile

sys.argv = ["shardmill"]
import shardmill
import cv2, numpy, pyarrow.compute, pydantic, rich.console  # once for all
from shardmill.flows.cli import main

def run(words):
    try:
        main(words)
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    return 1

found = []
for words in json.loads(os.environ["WORDS"]):
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(said.fileno(), 2)
            status = run(words)
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        found.append([status, said.read().decode()])
print(json.dumps(found))
"""


def test_every_command_works_or_names_the_extra_that_it_lacks(base: Path) -> None:
    assert set(COMMANDS) == {path.removeprefix("shardmill ") for path, _ in all_commands(root())}
    lines = [(f"{name} {more}", extra) for name, uses in COMMANDS.items() for more, extra in uses]
    done = ran(base, "-c", EACH, WORDS=json.dumps([line.split() for line, _ in lines]))
    assert done.returncode == 0, done.stderr
    found = dict(zip(lines, json.loads(done.stdout), strict=True))
    assert not {line: told for (line, extra), told in found.items() if not _is_right(extra, *told)}


def _is_right(extra: str | None, status: int, said: str) -> bool:
    """Whether a command without an extra says so in two lines, or has another end than a defect."""
    if extra is None:
        return status in (0, 2, 3, 4) and "is not installed" not in said and "Traceback" not in said
    *others, error, remedy = said.strip().splitlines()
    return (
        status == 4
        and error.startswith("error: ")
        and error.endswith(" is not installed")
        and remedy == f"remedy: pip install 'shardmill[{extra}]'"
        and not any(line.startswith(("error", "Traceback")) for line in others)
    )


# Every function of the package, and the methods of a dataset that need a framework.
CALLS = [
    ("prepare", "prepare('photos', dataset='d')"),
    (
        "prepare",
        "prepare_arrays({'train': numpy.zeros((4, 8, 8), 'uint8')}, {'train': [0, 1] * 2}, dataset='d')",
    ),
    ("tensorflow", "train('set')"),
    ("torch", "train('set', settings={'run.framework': 'torch'})"),
    ("tensorflow", "evaluate('run')"),
    ("tensorflow", "predict('run', 'photos')"),
    (None, "open_dataset('set').batches('test', batch_size=2)"),
    (None, "show_batch(numpy.zeros((2, 8, 8, 3), 'uint8')).save('batch.png')"),
    ("tensorflow", "open_dataset('set').tf('train', batch_size=2)"),
    ("torch", "open_dataset('set').torch('train', batch_size=2)"),
    ("jax", "open_dataset('set').jax('train', batch_size=2)"),
    ("grain", "open_dataset('set').grain('train', batch_size=2)"),
]
EACH_CALL = """
import json, os, numpy, shardmill

found = []
for call in json.loads(os.environ["CALLS"]):
    try:
        eval("shardmill." + call)
        found.append([None, None])
    except shardmill.EnvironmentFault as error:
        found.append([error.message, error.remedy])
print(json.dumps(found))
"""


def test_every_function_works_or_names_the_extra_that_it_lacks(base: Path) -> None:
    names = {name for name in shardmill.__all__ if inspect.isfunction(getattr(shardmill, name))}
    assert names == {call.partition("(")[0] for _, call in CALLS}
    done = ran(base, "-c", EACH_CALL, CALLS=json.dumps([call for _, call in CALLS]))
    assert done.returncode == 0, done.stderr
    for (extra, call), (message, remedy) in zip(CALLS, json.loads(done.stdout), strict=True):
        assert (message is None) == (extra is None), (call, message)
        if extra is not None:
            assert message.endswith(" is not installed"), call
            assert remedy == f"pip install 'shardmill[{extra}]'", call


def test_another_python_or_torch_is_named_where_tensorflow_has_no_wheels(base: Path) -> None:
    script = (
        "import shardmill, types\n"
        "from shardmill.infra import extras\n"
        "extras.sys = types.SimpleNamespace(version_info=(3, 14))\n"
        "shardmill.open_dataset('set').tf('train', batch_size=2)\n"
    )
    last = ran(base, "-c", script).stderr.strip().splitlines()[-1]
    assert "use 3.11 to 3.13, or PyTorch: pip install 'shardmill[torch]'" in last


def test_the_base_refuses_images_that_an_extra_reads(base: Path) -> None:
    script = (
        "import io, shardmill\n"
        "from PIL import Image\n"
        "from shardmill.infra.codecs import ImageRejected, decode\n"
        "file = io.BytesIO()\n"
        "Image.new('RGB', (8, 8)).save(file, 'TIFF')\n"
        "for data in (file.getvalue(), b'\\x93NUMPY', bytes(128) + b'DICM'):\n"
        "    try:\n"
        "        decode(data)\n"
        "    except ImageRejected as error:\n"
        "        print(error.message)\n"
    )
    done = ran(base, "-c", script)
    assert done.stdout.splitlines() == [
        f"a {name} image; to read these, pip install 'shardmill[{extra}]', and prepare again"
        for name, extra in (("TIFF", "prepare"), ("NumPy", "prepare"), ("DICOM", "dicom"))
    ], done.stderr


def test_the_base_reads_batches(base: Path) -> None:
    script = (
        "import json, shardmill\n"
        "dataset = shardmill.open_dataset('set')\n"
        "batches = dataset.batches('test', batch_size=3)\n"
        "print(json.dumps([label for _, labels in batches for label in labels.tolist()]))\n"
        "shown = shardmill.show_batch(next(iter(batches)), dataset)\n"
        "print(json.dumps([part._repr_html_().count('data:image') for part in (shown, dataset)]))\n"
    )
    done = ran(base, "-c", script)
    assert done.returncode == 0, done.stderr
    labels, pictures = map(json.loads, done.stdout.splitlines())
    assert sorted(labels) == [0, 0, 1, 1]
    assert pictures == [3, 12]


@pytest.mark.slow
def test_jax_and_grain_need_no_further_extra(tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured({"test": {"cat": 2, "dog": 2}}))
    script = (
        "import grain, shardmill\n"
        "dataset = shardmill.open_dataset('sample')\n"
        "read = dataset.grain('test', batch_size=2)\n"
        "loader = grain.DataLoader(data_source=read.source, sampler=read.sampler,\n"
        "    shard_options=grain.sharding.NoSharding())\n"
        "print([int(element['ordinal']) for element in loader])\n"
        "print([batch.ordinals.tolist() for batch in dataset.jax('test', batch_size=2)])\n"
    )
    done = ran(installation(tmp_path / "environment", "jax", "grain"), "-c", script)
    assert done.stdout == "[0, 1, 2, 3]\n[[0, 1], [2, 3]]\n", done.stderr


def test_prepare_alone_prepares(tmp_path: Path) -> None:
    make_photos(tmp_path / "photos", {"cat": 3, "dog": 3})
    done = ran(installation(tmp_path / "environment", "prepare"), "-m", "shardmill.flows.cli", "prepare",
               "photos", "--dataset", "d", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["num_records"] == 6


def test_each_extra_brings_the_libraries_that_it_is_named_for() -> None:
    project_extras = set(PROJECT["optional-dependencies"])
    assert set(LIBRARIES) == project_extras - {"all", "dev", "docs", "gpu"}
    brought_by = importlib.metadata.packages_distributions()
    for extra, libraries in LIBRARIES.items():
        names = {name.lower().replace("_", "-") for name in closure(extra)}
        for library in libraries:
            found = {name.lower().replace("_", "-") for name in brought_by.get(library, [])}
            assert not found or found & names, f"{library} does not come with {extra}"
            assert not found & closure(), f"{library} comes with the base"
