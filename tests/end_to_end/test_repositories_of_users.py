"""Commands, pool, ranks and flows in repositories of users with names of ours and of libraries."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.prefect_server.server import RunningServer
from tests.samples.repositories_of_users import (
    NAMES,
    Installed,
    Kind,
    all_names,
    install_wheel,
    make_repository,
    one_name,
    result_of,
)

SMALL = ("--set", "image.size=32", "--set", "runner.processes=2", "--set", "runner.block_images=4")
TRAIN = (
    "--set", "model.name=shop.keras_net:make", "--set", 'run.callbacks=["shop.keras_net:Said"]',
    "--set", "run.epochs=1", "--set", "data.global_batch_size=4", "--json",
)  # fmt: skip
ALL = [pytest.param(all_names(first), id=f"all-{first}") for first in (0, 1)]
EACH = [pytest.param(one_name(number), id=name, marks=pytest.mark.slow) for number, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_wheel(tmp_path_factory.mktemp("installed"))


@pytest.mark.parametrize("names", [*ALL, *EACH])
def test_prepare_and_train(
    names: Mapping[str, Kind], installed: Installed, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder, env = make_repository(tmp_path / "repository", names), installed.environment(tmp_path)
    source = ("photos", "--dataset", "p", "--root", "published")
    expected = result_of(installed.run(folder, "prepare", *source, *SMALL, "--dry-run", "--json", env=env))
    assert expected["num_inputs"] == 24
    own = ("--set", "source.kind=shop.kind", "--json")
    prepared = result_of(installed.run(folder, "prepare", *source, *SMALL, *own, env=env))
    assert prepared["num_records"] == 24
    show = ("show", "p", "--augmented", "--root", "published", "--set", "augment.mixup=0.2")
    installed.run(folder, *show, "--out", "augmented.png", env=env)
    assert (folder / "augmented.png").stat().st_size
    if request.node.callspec.id == "all-1":
        return  # the other one trains
    runs = ("p", "--root", "published", "--runs", "trained", *TRAIN)
    for ranks in (
        ("--workers", "2", "--devices", "cpu:2"),
        *([()] if "all" not in request.node.callspec.id else []),
    ):
        trained = result_of(installed.run(folder, "train", *runs, *ranks, env=env))
        assert Path(str(trained["run_dir"])).parent == folder / "trained"


@contextlib.contextmanager
def up(installed: Installed, folder: Path, env: Mapping[str, str]) -> Iterator[RunningServer]:
    """`shardmill up`, started in the repository of a user."""
    root, runs = folder / "published", folder / "trained"
    places = ("--root", str(root), "--runs", str(runs), "--no-tensorboard")
    command = ("up", "--detach", "--port", "0", "--json", *places)
    try:
        where = result_of(installed.run(folder, *command, env=env))
        urls = [str(where[name]) for name in ("ui_url", "api_url", "page_url")]
        yield RunningServer(urls[0], urls[1], urls[2], int(str(where["pid"])), root, runs, env)
    finally:
        installed.run(folder, "down", env=env)


@pytest.mark.parametrize("names", [pytest.param(all_names(2), id="all"), *EACH])
def test_a_flow_of_a_worker(
    names: Mapping[str, Kind], installed: Installed, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    trains = request.node.callspec.id != "all"
    folder, env = make_repository(tmp_path / "repository", names), installed.environment(tmp_path)
    elsewhere = make_repository(tmp_path / "elsewhere", names)
    shutil.rmtree(elsewhere / "shop")
    with up(installed, elsewhere, env) as server:
        added = ("schedule", "add", "photos", "--dataset", "p", "--every", "1d")
        training = ("--train", *TRAIN) if trains else ()
        installed.run(folder, *added, "--set", "source.kind=shop.kind", *training, env=env)
        deployment = "pipeline/pipeline" if trains else "prepare/prepare"
        (schedule,) = server.get(f"/deployments/name/{deployment}")["schedules"]
        parameters = schedule["parameters"]
        assert parameters["code"] == str(folder), "the worker was started elsewhere"
        run = server.deployment_run(deployment, **parameters)
        ended = server.wait(run)
        assert ended["state_type"] == "COMPLETED", json.dumps(ended["state"]) + str(server.logs(run))


def test_these_repositories_end_a_process_that_imports_from_them(
    installed: Installed, tmp_path: Path
) -> None:
    folder = make_repository(tmp_path / "repository", all_names(0))
    command = [installed.python, "-c", "import random"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "a module of the user was imported" in done.stderr
