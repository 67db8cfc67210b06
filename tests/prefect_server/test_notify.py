"""`shardmill notify`: a webhook and a mail server of this machine hear of a run that fails."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.prefect_server.server import RunningServer
from tests.samples.waiting import eventually


class _Hook(http.server.BaseHTTPRequestHandler):
    """A web hook that keeps the bodies of its requests."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.headers["Content-Type"], body.decode()))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class _Mail(socketserver.StreamRequestHandler):
    """A mail server that knows just enough of SMTP to receive a message."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        message: list[str] | None = None
        for raw in self.rfile:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if message is None:
                word = line.partition(" ")[0].upper()
                message = [] if word == "DATA" else None
                self.wfile.write({"DATA": b"354 go\r\n", "QUIT": b"221 bye\r\n"}.get(word, b"250 well\r\n"))
                if word == "QUIT":
                    return
            elif line == ".":
                self.server.heard.append("\n".join(message))  # type: ignore[attr-defined]
                message = None
                self.wfile.write(b"250 kept\r\n")
            else:
                message.append(line)


@contextlib.contextmanager
def listening(handler: type[socketserver.BaseRequestHandler]) -> Iterator[tuple[int, list[Any]]]:
    """Run a server on a free port; its port, and the list of requests that it receives."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.heard = heard = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join()


def test_a_failed_run_is_told_by_webhook_and_by_mail(shardmill_up: RunningServer, tmp_path: Path) -> None:
    absent = tmp_path / 'no "such" folder'
    with listening(_Hook) as (port, hooks), listening(_Mail) as (mail_port, mails):
        mail = f"mailto://127.0.0.1:{mail_port}?to=team@example.com&from=up@example.com&mode=insecure"
        urls = (f"http://127.0.0.1:{port}/hook?token=a-secret", mail)
        for url in (*urls, urls[0]):  # the same again replaces itself
            done = shardmill_up.shardmill("notify", url, "--on", "failed")
            assert done.returncode == 0, done.stderr
        try:
            run = shardmill_up.deployment_run("prepare/prepare", source=str(absent), dataset="absent")
            assert shardmill_up.wait(run)["state_type"] == "FAILED"
            assert eventually(lambda: bool(hooks and mails)), (hooks, mails)
        finally:
            for automation in shardmill_up.post("/automations/filter"):
                if automation["name"].startswith("shardmill-failed-"):
                    shardmill_up.delete(f"/automations/{automation['id']}")
    kind, body = hooks[0]
    told = json.loads(body)
    assert kind == "application/json"
    assert told["on"] == "failed"
    assert told["event"] == "prefect.flow-run.Failed"
    assert "prepare-absent" in told["text"] or run in told["text"]
    assert 'no "such" folder' in told["text"], "the message stays whole, and the text valid JSON"
    assert len({text for _, text in hooks}) == len(hooks), "nothing is told twice"
    assert "Subject: Shardmill: failed" in mails[0]
    assert "team@example.com" in mails[0]
