"""The container images: built, and run as compose.yaml runs them, by their own user."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardmill.flows.flow_runs.api_requests import answers
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.processes.ports import free_port
from tests.prefect_server.postgresql import running_postgresql
from tests.prefect_server.redis_server import running_redis
from tests.samples.clusters.container_images import (
    CONTAINERS,
    USER,
    Container,
    Images,
    folder_of_the_user,
    images_in,
)
from tests.samples.sources.image_folders import write_image_folder
from tests.samples.waiting import eventually

_AUTH = "team:a-long-password"
_SMALL = {"data": {"image_size": 32, "global_batch_size": 8}, "run": {"epochs": 1}}
_LACKS = "import importlib.util as u, sys; print([m for m in sys.argv[1:] if u.find_spec(m)])"

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    with images_in(tmp_path_factory.mktemp("images")) as found:
        yield found


@pytest.fixture(scope="module")
def built(images: Images) -> Callable[[str], str]:
    """Build the image of a requirement list when a test first needs it."""
    names: dict[str, str] = {}

    def build(name: str) -> str:
        if name not in names:
            names[name] = images.build(name)
        return names[name]

    return build


@pytest.fixture
def volumes(tmp_path: Path) -> dict[Path, str]:
    """Photographs that can only be read, and folders for datasets and runs."""
    write_image_folder(tmp_path / "photos", per_class=8)
    return {
        tmp_path / "photos": "/data/photos:ro",
        folder_of_the_user(tmp_path / "datasets"): "/data/datasets",
        folder_of_the_user(tmp_path / "runs"): "/data/runs",
    }


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("prepare", ["tensorflow"]),
        ("train", ["apache_beam"]),
        ("all", []),
        ("worker", ["tensorflow", "apache_beam"]),
        ("server", ["tensorflow", "apache_beam"]),
    ],
)
def test_an_image_says_its_help_and_lacks_what_it_does_not_need(
    name: str, lacks: list[str], images: Images, built: Callable[[str], str]
) -> None:
    with images.container(built(name), {}) as container:
        assert container.says("id", "--user").strip() == str(USER)
        assert "prepare" in container.says("shardmill", "--help")
        optional = ["tensorflow", "apache_beam"]
        found = container.says("python", "-c", _LACKS, *optional).strip()
        assert found == str([module for module in optional if module not in lacks])
        assert container.run("sh", "-c", "command -v gcc").returncode != 0, "the compiler stays in its stage"


def test_one_image_prepares_and_another_trains(
    images: Images, built: Callable[[str], str], volumes: dict[Path, str], tmp_path: Path
) -> None:
    with images.container(built("prepare"), volumes) as container:
        container.says("shardmill", "prepare", "/data/photos", "--dataset", "photos")
        refused = container.run("touch", "/data/photos/new.jpg")
        assert "Read-only file system" in refused.stderr
    manifest = Catalog(tmp_path / "datasets").open("photos@1").manifest
    assert manifest.accounting.num_records == 16
    with images.container(built("train"), volumes) as container:
        settings = ["data.image_size=32", "data.global_batch_size=8", "run.epochs=1"]
        container.says("shardmill", "train", "photos", *[word for one in settings for word in ("--set", one)])
    (result,) = (tmp_path / "runs").glob("*/result.json")
    assert json.loads(result.read_text())["dataset"]


def test_the_services_of_compose_prepare_and_train(
    images: Images, built: Callable[[str], str], volumes: dict[Path, str], tmp_path: Path
) -> None:
    with _services(images, built, volumes, tmp_path) as client:
        source = {"source": "/data/photos", "dataset": "photos"}
        assert _run(client, "prepare/prepare", source)["work_pool_name"] == "cpu"
        trained = _run(client, "train/train", {"dataset": "photos", "config": _SMALL})
        assert trained["work_pool_name"] == "gpu"
    assert Catalog(tmp_path / "datasets").open("photos@1").manifest.accounting.num_records == 16
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 1


@contextlib.contextmanager
def _services(
    images: Images, built: Callable[[str], str], volumes: dict[Path, str], folder: Path
) -> Iterator[_Client]:
    """Start the services of compose.yaml in its order; yields a container that has the client's settings.

    PostgreSQL and Redis are those of this machine. All share its network, so ports and addresses differ from
    those in the file.
    """
    services = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())["services"]
    port, wanted = free_port(), {"cpu": "worker-cpu", "gpu": "worker-gpu"}
    client = {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": _AUTH,
    }
    with contextlib.ExitStack() as stack:
        postgresql = stack.enter_context(running_postgresql())
        redis = stack.enter_context(running_redis(folder / "redis", password="athirdone"))
        server_env = {
            "PREFECT_SERVER_API_AUTH_STRING": _AUTH,
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": postgresql.url,
            "PREFECT_REDIS_MESSAGING_URL": redis.url,
        }

        def container(name: str) -> Container:
            image = services[name]["image"].split(":")[0].removeprefix("shardmill").removeprefix("-")
            return stack.enter_context(images.container(built(image or "all"), volumes))

        def start(name: str, env: dict[str, str], *more: str) -> None:
            container(name).start([*services[name]["command"], *more], folder / f"{name}.log", env)

        container("migrate").says(*services["migrate"]["command"], env=server_env)
        start("api", server_env, "--port", str(port))
        start("services", server_env)
        assert eventually(lambda: answers(f"http://127.0.0.1:{port}/api"), 180.0, every=0.5), (
            folder / "api.log"
        ).read_text()
        deployments = container("deployments")
        deployments.says(*services["deployments"]["command"], env=client)
        for name in wanted.values():
            health = {"PREFECT_WORKER_WEBSERVER_PORT": str(free_port()), "PREFECT_WORKER_QUERY_SECONDS": "3"}
            start(name, client | health)
        yield _Client(deployments, client)


class _Client:
    """A container with the address and the password of the server."""

    def __init__(self, container: Container, env: dict[str, str]) -> None:
        self._container = container
        self._env = env

    def says(self, *command: str) -> str:
        """Run a command of the client, which must succeed; return its standard output."""
        return self._container.says(*command, env=self._env)


def _run(client: _Client, deployment: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run a deployment to its good end, from a container; returns the flow run."""
    said = client.says(
        "prefect",
        "--no-prompt",
        "deployment",
        "run",
        deployment,
        "--params",
        json.dumps(parameters),
        "--watch",
    )
    assert "Completed" in said
    (run_id,) = {line.split()[-1] for line in said.splitlines() if "UUID" in line}
    found: dict[str, Any] = json.loads(
        client.says("prefect", "flow-run", "inspect", run_id, "--output", "json")
    )
    return found
