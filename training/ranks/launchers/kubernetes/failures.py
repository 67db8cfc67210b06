"""Rules that tell Kubernetes, by the exit status of a rank, whether the JobSet starts again.

A pod that fails makes its Job fail at once, and all pods end. The reason and the message of the failure tell
the JobSet whether to start all pods again or to fail. The exit statuses are explained in
``shardmill.training.ranks.launchers.outer``:

    2, 3, 130                                   the JobSet fails
    75, or the node was taken from the pod      all start again, any number of times
    any other                                   all start again, at most ``max_restarts`` times

Both rules need the message. JobSet reads it since release 0.10; an older one takes the first rule for both,
so that it never starts a training with wrong settings for ever.
"""

from __future__ import annotations

from typing import Any, Final

from shardmill.training.ranks.launchers.outer import FINAL, PREEMPTED

_BY_POLICY: Final = ["PodFailurePolicy"]


def pod_failure_policy(container: str) -> dict[str, Any]:
    """Return the ``podFailurePolicy`` of the Job, whose rank runs in ``container``."""
    return {
        "rules": [
            _on_exit_codes(container, sorted(FINAL)),
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            _on_exit_codes(container, [PREEMPTED]),
        ]
    }


def _on_exit_codes(container: str, values: list[int]) -> dict[str, Any]:
    return {
        "action": "FailJob",
        "onExitCodes": {"containerName": container, "operator": "In", "values": values},
    }


def failure_policy(max_restarts: int) -> dict[str, Any]:
    """Return the ``failurePolicy`` of the JobSet. Failures that match no rule count as restarts."""
    final = "|".join(str(status) for status in sorted(FINAL))
    return {
        "maxRestarts": max_restarts,
        # Pods of a try must be gone before the next: one of them may still write a checkpoint.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "wrongSettingsOrData",
                "action": "FailJobSet",
                "onJobFailureReasons": _BY_POLICY.copy(),
                "onJobFailureMessagePatterns": [f"failed with exit code ({final}) matching FailJob rule"],
            },
            {
                "name": "preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": _BY_POLICY.copy(),
                "onJobFailureMessagePatterns": [
                    f"failed with exit code {PREEMPTED} matching FailJob rule",
                    "has condition DisruptionTarget matching FailJob rule",
                ],
            },
        ],
    }
