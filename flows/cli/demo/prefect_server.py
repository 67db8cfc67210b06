"""The Prefect server of the demo, with a history of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from shardmill.flows import home
from shardmill.flows.cli import output
from shardmill.flows.server.api import Api
from shardmill.flows.server.running_up import up_lock
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.ports import free_port

_WATCH_SECONDS = 1.0
_END_SECONDS = 5.0


@contextlib.contextmanager
def prefect_server(place: Path) -> Iterator[PrefectServer]:
    """Start a Prefect server of the demo's own, which keeps its history in ``place``, until the block ends.

    It need not answer yet when the block begins. It ends with this process, however that ends.
    """
    for variable in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[variable]  # of the user's own server
    os.environ["SHARDMILL_HOME"] = str(place.resolve())
    with up_lock("wait until it has ended, or name another folder: --out FOLDER", process_id=os.getpid()):
        home.make_private()
        os.environ.update(home.prefect_environment())
        with contextlib.closing(PrefectServer()) as prefect:
            os.environ.update(PREFECT_API_URL=prefect.api.url, PREFECT_UI_URL=prefect.api.ui_url)
            yield prefect


class PrefectServer:
    """The Prefect server of the demo; once it answers, it is started again if it ends."""

    def __init__(self) -> None:
        from shardmill.flows.server import services  # with a library of Prefect's extra
        from shardmill.flows.server.kept_service import KeptService

        port, log = free_port(), home.logs_folder() / "server.log"
        url = home.server_url("127.0.0.1", port)
        self.api = Api(f"{url}/api", url)
        self._server = KeptService(
            services.SERVER,
            lambda: services.Server("127.0.0.1", port, log_path=log, env={}),
            output.note,
        )
        self._first = self._server.launch()
        self._keeping = threading.Thread(target=self._keep, name="keep-server", daemon=True)
        self._is_closed = threading.Event()

    def wait_until_healthy(self) -> None:
        """Wait until it answers, and keep it running from then on."""
        self._first.wait_until_healthy()
        self._keeping.start()

    def _keep(self) -> None:
        try:
            while not self._is_closed.wait(_WATCH_SECONDS):
                self._server.keep()
        except EnvironmentFault as error:  # it ends again and again: the run goes on without it
            if not self._is_closed.is_set():
                output.note(f"warning: {error.message}")

    def close(self) -> None:
        """End it, after Prefect's threads have sent the last logs and events of this process.

        Otherwise they would wait for it at the end of the process.
        """
        process = self._server.process
        if process is not None and not process.has_ended and "prefect" in sys.modules:
            from prefect.events.worker import EventsWorker
            from prefect.logging.handlers import APILogHandler

            APILogHandler().flush()
            EventsWorker.drain_all(timeout=_END_SECONDS)
        self._is_closed.set()
        if self._keeping.is_alive():
            self._keeping.join(_END_SECONDS)
        self._server.stop()
