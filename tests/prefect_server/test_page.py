"""The page, TensorBoard and the metrics of a running `shardmill up`."""

from __future__ import annotations

import contextlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.prefect_server.server import RunningServer
from tests.samples.sources.image_folders import write_image_folder
from tests.samples.waiting import eventually

_LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def read(url: str) -> str:
    with _OPENER.open(url, timeout=30) as answer:
        return str(answer.read().decode("utf-8"))


def answers(url: str) -> bool:
    try:
        return bool(read(url))
    except OSError:
        return False


def figures(page: str) -> dict[tuple[str, ...], float]:
    """(name, values of its labels) -> value, of the page's metrics."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(read(f"{page}/metrics"))
        for sample in family.samples
    }


def test_a_run_is_seen_on_the_page_and_no_call_leaves_the_machine(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    page = shardmill_up.page_url
    with _watched_sockets(shardmill_up.pid) as strangers:
        run = shardmill_up.deployment_run("prepare/prepare", source=str(source), dataset="seen")
        assert shardmill_up.wait(run)["state_type"] == "COMPLETED"
        assert "seen@1" in read(f"{page}/")
        assert "Shardmill report" in read(f"{page}/datasets/seen/1/report")
        assert eventually(lambda: answers(f"{page}/tensorboard/data/environment"))
        # The page answers with the last known figures: at first there may be none.
        assert eventually(lambda: ("shardmill_flow_runs", "prepare", "completed") in figures(page))
        found = figures(page)
    assert strangers == set()
    assert found["shardmill_flow_runs", "prepare", "completed"] >= 1
    assert found["shardmill_workers_online",] == 1
    assert found["shardmill_dataset_versions", "seen"] == 1
    assert found["shardmill_prefect_up",] == 1


@contextlib.contextmanager
def _watched_sockets(pid: int) -> Iterator[set[str]]:
    """Collect the addresses beyond loopback that the processes of `shardmill up` listen on or talk to."""
    found: set[str] = set()
    seen: set[int] = set()
    end = threading.Event()

    def watch() -> None:
        while not end.wait(0.05):
            with contextlib.suppress(psutil.NoSuchProcess):
                up = psutil.Process(pid)
                for process in [up, *up.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        seen.add(process.pid)
                        for connection in process.net_connections(kind="inet"):
                            ends = [place.ip for place in (connection.laddr, connection.raddr) if place]
                            found.update(ip for ip in ends if ip not in _LOOPBACK)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        end.set()
        watcher.join()
    assert len(seen) > 6, "server, worker, page, TensorBoard and a run were watched"


def test_the_second_interface_of_prefect_cannot_be_opened(shardmill_up: RunningServer) -> None:
    with _OPENER.open(f"{shardmill_up.ui_url}/v2/dashboard", timeout=30) as answer:
        assert answer.url == f"{shardmill_up.ui_url}/"


@pytest.mark.parametrize(
    ("kind", "path"), [("page", "/health"), ("tensorboard", "/tensorboard/data/environment")]
)
def test_page_and_tensorboard_are_started_again(shardmill_up: RunningServer, kind: str, path: str) -> None:
    url, pid = f"{shardmill_up.page_url}{path}", shardmill_up.pid
    assert eventually(lambda: answers(url))
    (killed,) = _services(pid, kind)
    killed.kill()
    assert eventually(lambda: any(service != killed for service in _services(pid, kind)))
    assert eventually(lambda: answers(url))


def _services(pid: int, kind: str) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [
            process
            for process in psutil.Process(pid).children()
            if process.status() != psutil.STATUS_ZOMBIE and kind in process.cmdline()
        ]
    return []


def test_a_foreign_page_is_refused(shardmill_up: RunningServer) -> None:
    for path in ("/", "/metrics", "/tensorboard/data/runs"):
        request = urllib.request.Request(f"{shardmill_up.page_url}{path}", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            _OPENER.open(request, timeout=30)
        assert refused.value.code == 403
        refused.value.close()
