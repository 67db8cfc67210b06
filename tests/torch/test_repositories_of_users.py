"""Training and spawned workers with PyTorch in repositories of users with names of ours and of libraries."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from shardmill.infra.processes.job_command import python_module
from tests.samples.repositories_of_users import (
    NAMES,
    Installed,
    Kind,
    all_names,
    install_wheel,
    make_repository,
    one_name,
)

# Run in the root of the repository, as "python scripts/read.py".
TRAIN = (
    "run.framework=torch", "run.epochs=1", "run.devices=cpu:2", "ranks.workers=2",
    "model.name=shop.torch_net:make", "data.global_batch_size=10",
)  # fmt: skip
SCRIPT = """\
import sys

import shardmill


def main():
    root = sys.argv[1]
    photos = shardmill.open_dataset("set", root=root)
    batches = photos.torch("train", batch_size=10, num_workers=1, multiprocessing_context="spawn")
    print("labels", len(next(iter(batches)).labels))


if __name__ == "__main__":
    main()
"""
EACH = [pytest.param(one_name(number), id=name, marks=pytest.mark.slow) for number, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_wheel(tmp_path_factory.mktemp("installed"))


@pytest.mark.parametrize("names", [pytest.param(all_names(1), id="all"), *EACH])
def test_train_by_ranks_and_read_by_spawned_workers(
    names: Mapping[str, Kind], installed: Installed, root: Path, tmp_path: Path
) -> None:
    folder = make_repository(tmp_path / "repository", names)
    (folder / "scripts").mkdir()
    (folder / "scripts/read.py").write_text(SCRIPT)
    env = installed.environment(tmp_path)

    def said(*command: object) -> str:
        done = subprocess.run(
            [str(word) for word in (installed.python, *command)],
            cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "a module of the user" not in done.stderr
        return done.stdout

    assert said("scripts/read.py", root) == "labels 10\n"
    settings = [word for each in TRAIN for word in ("--set", each)]
    places = ("--root", root, "--runs", "trained")
    said(*python_module("shardmill.training.train", "set")[1:], *places, *settings)
    assert [path.name.startswith("set-v1-") for path in (folder / "trained").glob("set-*")] == [True]
