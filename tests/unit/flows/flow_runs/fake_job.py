"""A job that does nothing but speak the events of shardmill.infra.progress, as prepare and train do.

python fake_job.py BEHAVIOUR [the arguments of the real job]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from shardmill.infra import progress
from shardmill.infra.errors import FailureBudgetExceeded
from shardmill.infra.processes.process import run_main

# One grey pixel.
PICTURE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
RESULT = {
    "dataset": "fake",
    "version": 1,
    "num_inputs": 10,
    "num_records": 7,
    "num_duplicates": 1,
    "num_filtered": 1,
    "num_quarantined": 1,
    "splits": {
        "train": {"num_examples": 7, "num_shards": 1, "num_bytes": 700, "class_counts": {"cat": 4, "dog": 3}}
    },
    "container": "gzip",
    "seconds": 0.1,
    "images_per_second": 70.0,
    "peak_memory_bytes": 1000,
    "quarantine": {"truncated": 1},
    "unchanged": True,
}


def main() -> int:
    """Behave as the first argument says."""
    behaviour = sys.argv[1]
    progress.stage("encode", 10)
    print("a line of the fake job", flush=True)
    if behaviour == "works":
        progress.progress("encode", 10, 10)
        progress.metrics(split="train", step=1, loss=0.5)
        progress.result(RESULT | {"arguments": sys.argv[2:]})
    elif behaviour == "over-budget":
        lost = {"uri": "a/broken.jpg", "reason": "truncated", "message": "it ends early", "picture": PICTURE}
        progress.emit({"event": "lost", "reasons": {"truncated": 9}, "inputs": [lost]})
        raise FailureBudgetExceeded("9 of 10 inputs cannot be decoded", "raise failure_budget")
    elif behaviour == "dies-once":
        marker = Path(os.environ["FAKE_JOB_MARKER"])
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        progress.result(RESULT)
    elif behaviour.startswith("kills-the-server"):
        # Wait for a flow run, so that the server dies before the run ends.
        running = Path(os.environ["SHARDMILL_HOME"]) / "running"
        while not (running.is_dir() and any(running.iterdir())):
            time.sleep(0.1)
        os.kill(int(os.environ["FAKE_JOB_SERVER"]), signal.SIGKILL)
        if behaviour.endswith("and-fails"):
            raise FailureBudgetExceeded("9 of 10 inputs cannot be decoded", "raise failure_budget")
        progress.result(RESULT | {"unchanged": False})
    elif behaviour == "waits":
        # A grandchild, as the Beam job is one of prepare.
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(os.environ["FAKE_JOB_MARKER"]).write_text(f"{os.getpid()} {grandchild.pid}")
        time.sleep(600)
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
