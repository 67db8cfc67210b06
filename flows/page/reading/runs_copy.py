"""Keep a copy of the runs of an object store fresh, for the page and TensorBoard, which read files."""

from __future__ import annotations

import logging
import threading
import time

from shardmill.infra.storage.locations import public_location
from shardmill.training.run.files.stored import fetch_runs

LOG = logging.getLogger("shardmill.page")

_LEAST_SECONDS = 10.0  # trainings upload as often
_PAUSE_FACTOR = 4  # with many runs, copying takes at most a fifth of the time
_STOP_SECONDS = 5.0


class RunsCopy:
    """Copies the results and the logs of all runs of a store to this machine, again and again, on a thread.

    Attributes:
        uri: the folder of the runs, without credentials.
        problem: why the copy is not fresh, for people; None: it is.
    """

    def __init__(self, runs: str) -> None:
        self.uri = public_location(runs)
        self.problem: str | None = f"The runs of {self.uri} are being copied to this machine: reload soon"
        self._runs = runs
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="shardmill-runs-copy", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def close(self) -> None:
        """Stop soon; a copying that takes longer ends with the process."""
        self._stopped.set()
        self._thread.join(_STOP_SECONDS)

    def _copy(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                fetch_runs(self._runs, with_logs=True)
                self.problem = None
            except Exception as error:  # noqa: BLE001  the next copying may succeed
                LOG.warning("cannot copy the runs of %s: %s", self.uri, error)
                self.problem = (
                    f"The runs of {self.uri} cannot be copied to this machine; "
                    f"those that were copied before are shown: {error}"
                )
            pause = max(_LEAST_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began))
