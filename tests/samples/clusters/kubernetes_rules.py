"""The reaction of Kubernetes and JobSet to a failed pod, after their source code.

Kubernetes: ``pkg/controller/job/pod_failure_policy.go``; JobSet 0.12: ``pkg/controllers/failure_policy.go``.
"""

from __future__ import annotations

import re
from typing import Any


def job_failure(job: dict[str, Any], exit_code: int, *, disrupted: bool = False) -> tuple[str, str]:
    """The reason and the message of the failure of a Job whose ``backoffLimit`` is 0."""
    assert job["backoffLimit"] == 0
    container = job["template"]["spec"]["containers"][0]["name"]
    for index, rule in enumerate(job["podFailurePolicy"]["rules"]):
        assert rule["action"] == "FailJob"
        codes = rule.get("onExitCodes")
        if codes is not None and codes["containerName"] == container and exit_code in codes["values"]:
            what = f"Container {container} for pod default/pod failed with exit code {exit_code}"
            return "PodFailurePolicy", f"{what} matching FailJob rule at index {index}"
        for condition in rule.get("onPodConditions", []):
            if disrupted and condition == {"type": "DisruptionTarget", "status": "True"}:
                what = "Pod default/pod has condition DisruptionTarget"
                return "PodFailurePolicy", f"{what} matching FailJob rule at index {index}"
    return "BackoffLimitExceeded", "Job has reached the specified backoff limit"


def jobset_action(policy: dict[str, Any], reason: str, message: str, *, reads_messages: bool = True) -> str:
    """The action of a JobSet, one of whose Jobs failed; releases before 0.10 read no messages."""
    for rule in policy["rules"]:
        reasons, patterns = rule.get("onJobFailureReasons", []), rule.get("onJobFailureMessagePatterns", [])
        if not reads_messages:
            patterns = []
        if (not reasons or reason in reasons) and (
            not patterns or any(re.search(pattern, message) for pattern in patterns)
        ):
            return str(rule["action"])
    return "RestartJobSet"
