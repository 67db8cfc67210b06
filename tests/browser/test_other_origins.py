"""A web page of another origin can do nothing to the Prefect server of `shardmill up`."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Browser
from tests.prefect_server.server import RunningServer

# Each way in that a browser offers to a page, as a promise: "open" where the page got through.
_ATTACK = """
const [api, deployment, done] = arguments;
const create = `${api}/deployments/${deployment}/create_flow_run`;
const run = JSON.stringify({name: 'attack', job_variables: {command: 'touch /tmp/attacked'}});
const read = async response => { await (await response).text(); return 'open'; };
const ways = {
  'read with GET': () => read(fetch(`${api}/admin/version`)),
  'read with POST': () => read(fetch(`${api}/flow_runs/filter`, {
    method: 'POST', body: '{}', headers: {'Content-Type': 'application/json'}})),
  'read a token': () => read(fetch(`${api}/csrf-token?client=page`)),
  'create a run': () => read(fetch(create, {
    method: 'POST', body: run, headers: {'Content-Type': 'application/json'}})),
  'listen to events': () => new Promise((resolve, reject) => {
    const socket = new WebSocket(`${api.replace('http', 'ws')}/events/out`, ['prefect']);
    socket.onopen = () => resolve('open');
    socket.onerror = () => reject(new Error('refused'));
  }),
  'create a run blindly, as text': () => fetch(create, {
    method: 'POST', mode: 'no-cors', body: run, headers: {'Content-Type': 'text/plain'}}).then(() => 'sent'),
  'create a run blindly, without a type': () => fetch(create, {
    method: 'POST', mode: 'no-cors', body: new Blob([run])}).then(() => 'sent'),
};
(async () => {
  const found = {};
  for (const [name, way] of Object.entries(ways))
    found[name] = await way().catch(() => 'refused');
  done(found);
})();
"""


@pytest.fixture
def other_origin() -> Iterator[str]:
    """Address of an empty page on another port."""

    class EmptyPage(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>another origin</title>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def _attack(browser: Browser, server: RunningServer) -> dict[str, str]:
    deployment = server.get("/deployments/name/prepare/prepare")["id"]
    browser.driver.set_script_timeout(60)
    found: dict[str, str] = browser.driver.execute_async_script(_ATTACK, server.api_url, deployment)
    return found


def _attacks(server: RunningServer) -> Any:
    return server.post("/flow_runs/count", flow_runs={"name": {"any_": ["attack"]}})


def test_a_page_of_another_origin_can_neither_read_nor_start_anything(
    browser: Browser, shardmill_up: RunningServer, other_origin: str
) -> None:
    browser.driver.get(other_origin)
    found = _attack(browser, shardmill_up)
    blind = {name for name in found if "blindly" in name}
    assert {name: found[name] for name in found if name not in blind} == dict.fromkeys(
        found.keys() - blind, "refused"
    )
    assert {found[name] for name in blind} == {"sent"}, "a browser does not say what became of these"
    assert _attacks(shardmill_up) == 0


def test_its_own_page_can(browser: Browser, shardmill_up: RunningServer) -> None:
    """The attack itself works: from a page of the server it reads, and listens."""
    browser.driver.get(shardmill_up.ui_url)
    found = _attack(browser, shardmill_up)
    assert {found[name] for name in ("read with GET", "read a token", "listen to events")} == {"open"}
    assert _attacks(shardmill_up) == 0, "without its token, not even this page starts a run"


def test_a_name_that_was_pointed_at_this_machine_is_refused(shardmill_up: RunningServer) -> None:
    """DNS rebinding: the page's own host name leads to 127.0.0.1, so that the browser sees one origin."""
    address = urlsplit(shardmill_up.ui_url)
    assert address.hostname is not None
    assert address.port is not None
    for host, status in ((f"evil.example:{address.port}", b"403"), (address.netloc, b"200")):
        with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
            request = f"GET /api/admin/version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            assert connection.recv(1000).split()[1] == status


def test_the_settings_of_the_page_ask_for_its_token(shardmill_up: RunningServer) -> None:
    settings = json.loads(_page(shardmill_up, "/ui-settings"))
    assert settings["csrf_enabled"] is True


def _page(server: RunningServer, path: str) -> str:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(server.ui_url + path, timeout=30) as response:
        return str(response.read().decode())
