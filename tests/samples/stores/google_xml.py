"""Google's XML interface before a server that has conditional writes in its JSON interface alone.

fake-gcs-server reads by both interfaces, and writes by the JSON one. Here a put of the XML interface becomes
an upload of the JSON interface with the same condition, and a deletion a deletion. The server itself keeps
the objects and checks the conditions.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from urllib.parse import quote, unquote, urlsplit

from tests.samples.stores.forwarding import Answer, Forwarder, forwarding

_CONDITION = "x-goog-if-generation-match"


class _XmlInterface(Forwarder):
    def answer(self) -> None:
        """Translate writes of single objects; pass all else on."""
        body = self.read_body()
        place = urlsplit(self.path)
        bucket, _, key = place.path.lstrip("/").partition("/")
        is_object = (
            bool(key) and not place.query and bucket not in ("storage", "upload", "download", "resumable")
        )
        if is_object and self.command == "PUT":
            status, headers, answer = self._upload(unquote(bucket), unquote(key), body)
        elif is_object and self.command == "DELETE":
            name = quote(unquote(key), safe="")
            status, headers, answer = self.ask(
                "DELETE", f"/storage/v1/b/{bucket}/o/{name}", [self._host()], b""
            )
        else:
            # The server does not take an escaped slash for a slash.
            path = f"/{bucket}/{quote(unquote(key))}" if is_object else self.path
            kept = [pair for pair in self.headers.items() if pair[0].lower() != "host"]
            status, headers, answer = self.ask(self.command, path, [self._host(), *kept], body)
        self.send(status, headers, answer, self.length_of(headers, answer))

    def _host(self) -> tuple[str, str]:
        """The Host header of requests to the server."""
        return "Host", f"127.0.0.1:{self.upstream_port}"

    def _upload(self, bucket: str, key: str, body: bytes) -> Answer:
        query = f"uploadType=multipart&name={quote(key, safe='')}"
        if _CONDITION in self.headers:
            query += f"&ifGenerationMatch={self.headers[_CONDITION]}"
        border = uuid.uuid4().hex
        parts = [("application/json", json.dumps({"name": key}).encode()), ("application/octet-stream", body)]
        form = b"".join(
            f"--{border}\r\nContent-Type: {kind}\r\n\r\n".encode() + part + b"\r\n" for kind, part in parts
        )
        status, headers, answer = self.ask(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?{query}",
            [
                self._host(),
                ("Content-Type", f"multipart/related; boundary={border}"),
            ],
            form + f"--{border}--\r\n".encode(),
        )
        if status != 200:
            return status, headers, answer
        written = json.loads(answer)
        return 200, [("ETag", f'"{written["etag"]}"'), ("x-goog-generation", written["generation"])], b""


@contextlib.contextmanager
def xml_interface(port: int) -> Iterator[int]:
    """Run the interface before the server at ``port``, in a process of its own; its port.

    Arrow's client waits for some answers while it holds the interpreter's lock, so none can come from a
    thread of the same process.
    """
    command = [sys.executable, "-m", "tests.samples.stores.google_xml", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()  # the end of its input ends it


def main() -> None:
    """Serve until the end of the input."""
    with forwarding(_XmlInterface, int(sys.argv[1])) as own:
        print(own, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
