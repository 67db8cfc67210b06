"""Run the pods of a JobSet as processes of this machine, by the rules of its controllers.

No cluster is involved: the command and the variables are those of the manifest, volumes are folders of the
same path, and the name of a pod means this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.samples.clusters.kubernetes_rules import job_failure, jobset_action

_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class JobSetProcesses:
    """A running JobSet.

    Attributes:
        pods: the process of each pod, by its index.
        actions: what the JobSet did after each failure.
        state: "Running", "Completed" or "Failed".
    """

    def __init__(self, manifest: dict[str, Any], log: Path) -> None:
        (replicated,) = manifest["spec"]["replicatedJobs"]
        self._name = manifest["metadata"]["name"]
        self._policy = manifest["spec"]["failurePolicy"]
        self._job = replicated["template"]["spec"]
        self._first_pod = f"{self._name}-{replicated['name']}-0-0.{self._name}"
        self._log = log
        self._counted = 0
        self.actions: list[str] = []
        self.state = "Running"
        self._start()

    def look(self) -> str:
        """Do what the controllers do after a change of the pods, and return the state."""
        statuses = [pod.poll() for pod in self.pods]
        failed = [status for status in statuses if status not in (None, 0)]
        if failed:
            # A shell and Kubernetes tell the end by a signal as 128 and its number.
            status = failed[0] if failed[0] > 0 else 128 - failed[0]
            self._end_pods()
            self._act(jobset_action(self._policy, *job_failure(self._job, status)))
        elif all(status == 0 for status in statuses):
            self.state = "Completed"
        return self.state

    def wait(self, seconds: float = 300.0) -> str:
        """Look again and again until the JobSet ends, and return its state."""
        end = time.monotonic() + seconds
        while self.look() == "Running" and time.monotonic() < end:
            time.sleep(0.1)
        return self.state

    def wait_for_action(self, number: int, seconds: float = 300.0) -> None:
        """Look again and again until the JobSet has acted ``number`` times, or ended."""
        end = time.monotonic() + seconds
        while len(self.actions) < number and self.look() == "Running" and time.monotonic() < end:
            time.sleep(0.1)

    def kill(self, pod: subprocess.Popen[bytes]) -> None:
        """Kill all processes of a pod, as the end of its first one does in a container."""
        os.killpg(pod.pid, signal.SIGKILL)
        pod.wait()

    def close(self) -> None:
        """End all pods."""
        self._end_pods()

    def _act(self, action: str) -> None:
        self.actions.append(action)
        self._counted += action == "RestartJobSet"
        if action == "FailJobSet" or self._counted > self._policy["maxRestarts"]:
            self.state = "Failed"
        else:
            self._start()

    def _start(self) -> None:
        (container,) = self._job["template"]["spec"]["containers"]
        command = [part.replace("$$", "$") for part in container["command"]]
        with self._log.open("ab") as log:
            self.pods = [
                subprocess.Popen(
                    [sys.executable if part == "python" else part for part in command],
                    env={**_of_the_image(), **self._variables(container, index)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for index in range(self._job["completions"])
            ]

    def _variables(self, container: dict[str, Any], index: int) -> dict[str, str]:
        found = {"JOB_COMPLETION_INDEX": str(index)}  # Kubernetes adds it
        for variable in container["env"]:
            if "value" in variable:
                found[variable["name"]] = variable["value"]
            else:
                assert variable["valueFrom"]["fieldRef"]["fieldPath"] == _INDEX
                found[variable["name"]] = str(index)
        # The name that the headless service gives the first pod.
        return {name: "127.0.0.1" if value == self._first_pod else value for name, value in found.items()}

    def _end_pods(self) -> None:
        grace = self._job["template"]["spec"]["terminationGracePeriodSeconds"]
        for pod in self.pods:
            if pod.poll() is None:
                pod.send_signal(signal.SIGTERM)
        end = time.monotonic() + grace
        for pod in self.pods:
            try:
                pod.wait(timeout=max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self.kill(pod)


def _of_the_image() -> dict[str, str]:
    """The variables that an image sets, and what this machine needs for them."""
    kept = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}
