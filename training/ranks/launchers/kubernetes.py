"""Write the JobSet of ``--launcher kubernetes``. Nothing here asks a cluster.

Each pod is one rank, numbered by the index of the pod in an indexed Job, or runs several ranks
(``kubernetes_pod``). They find rank 0 by the name that the headless service of the JobSet gives the first
pod.

A pod that fails makes its Job fail at once, and all pods end. The reason and the message of the failure, made
from the exit status of the rank (``outer``), tell the JobSet how to go on:

    2, 3, 130                                   the JobSet fails
    75, or the node was taken from the pod      all start again, any number of times
    any other                                   all start again, at most ``max_restarts`` times

Both rules need the message. JobSet reads it since release 0.10; an older one takes the first rule for both,
so that it never starts a training with wrong settings for ever.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import yaml

from shardmill.infra.errors import ConfigError
from shardmill.infra.processes.job_command import python_module
from shardmill.training.ranks.launchers import kubernetes_pod
from shardmill.training.ranks.launchers.outer import FINAL, PREEMPTED, JobFiles, OuterJob
from shardmill.training.ranks.launchers.settings import KubernetesSettings

FILE = "jobset.yaml"
_JOB = "ranks"
_CONTAINER = "rank"
_PORT = 29500
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# The user of the images in infra/deploy/containers.
_USER = 10001
_LAST_SECONDS = 30
# A DNS label has at most 63 characters. Pods have the longest names: <JobSet>-<ranks>-0-<rank>-<5 letters>.
_LONGEST_LABEL = 63
_SUFFIX = "-abcde"
_DIGEST_LENGTH = 8


def render(job: OuterJob, options: KubernetesSettings) -> JobFiles:
    """Return the manifest of a training.

    Raises:
        ConfigError: a JobSet cannot run it.
    """
    text = yaml.safe_dump(_jobset(job, options), sort_keys=False, width=1000)
    head = "# Trains with JobSet 0.10 or later. Written by shardmill train --launcher kubernetes.\n"
    return JobFiles({FILE: head + text}, ("kubectl", "create", "-f", FILE))


def _jobset(job: OuterJob, options: KubernetesSettings) -> dict[str, Any]:
    num_pods = _num_pods(job, options.ranks_per_pod)
    name = options.name or jobset_name(job.name, num_pods)
    labels = {"app.kubernetes.io/name": "shardmill", "app.kubernetes.io/component": "train"}
    queue = {} if options.queue is None else {"kueue.x-k8s.io/queue-name": options.queue}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            **({} if options.namespace is None else {"namespace": options.namespace}),
            "labels": {**labels, **queue},
            "annotations": {"shardmill/run": job.name, "shardmill/dataset": job.dataset},
        },
        "spec": {
            "failurePolicy": _failure_policy(options.max_restarts),
            # Ranks find each other before they are ready.
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [
                {
                    "name": _JOB,
                    "replicas": 1,
                    "template": {"spec": _job(job, options, name, num_pods, labels)},
                }
            ],
        },
    }


def _num_pods(job: OuterJob, ranks_per_pod: int) -> int:
    if job.count.least != job.count.most:
        raise ConfigError(
            f"ranks.workers = {job.count.least}..{job.count.most}, but a JobSet has a fixed number of pods",
            f"set it to {job.count.most}",
        )
    if job.count.most % ranks_per_pod:
        raise ConfigError(
            f"{job.count.most} ranks do not fill pods of {ranks_per_pod} (ranks.kubernetes.ranks_per_pod)",
            "set ranks.workers to a multiple of ranks.kubernetes.ranks_per_pod",
        )
    return job.count.most // ranks_per_pod


def jobset_name(run: str, num_pods: int) -> str:
    """Return a name for the JobSet of a run. Two runs have different names."""
    room = _LONGEST_LABEL - len(f"-{_JOB}-0-{num_pods - 1}{_SUFFIX}")
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    if plain == run and plain[0].isalpha() and len(plain) <= room:
        return plain
    digest = hashlib.sha256(run.encode()).hexdigest()[:_DIGEST_LENGTH]
    plain = plain if plain[:1].isalpha() else f"run-{plain}"
    return f"{plain[: room - _DIGEST_LENGTH - 1].rstrip('-')}-{digest}"


def _failure_policy(max_restarts: int) -> dict[str, Any]:
    """Say how the JobSet goes on after a failure. Failures that match no rule count as restarts."""
    final = "|".join(str(status) for status in sorted(FINAL))
    return {
        "maxRestarts": max_restarts,
        # Pods of a try must be gone before the next: one of them may still write a checkpoint.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "wrongSettingsOrData",
                "action": "FailJobSet",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f"failed with exit code ({final}) matching FailJob rule"],
            },
            {
                "name": "preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [
                    f"failed with exit code {PREEMPTED} matching FailJob rule",
                    "has condition DisruptionTarget matching FailJob rule",
                ],
            },
        ],
    }


def _job(
    job: OuterJob, options: KubernetesSettings, name: str, num_pods: int, labels: dict[str, str]
) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "completions": num_pods,
        "parallelism": num_pods,
        # One pod that fails ends all.
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                _rule_of_statuses(sorted(FINAL)),
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                _rule_of_statuses([PREEMPTED]),
            ]
        },
        "template": {"metadata": {"labels": labels}, "spec": _pod(job, options, name)},
    }


def _rule_of_statuses(statuses: list[int]) -> dict[str, Any]:
    on_exit_codes = {"containerName": _CONTAINER, "operator": "In", "values": statuses}
    return {"action": "FailJob", "onExitCodes": on_exit_codes}


def _pod(job: OuterJob, options: KubernetesSettings, name: str) -> dict[str, Any]:
    volumes = [
        *([] if "://" in job.root else [("datasets", options.datasets_claim, options.datasets_path)]),
        *([] if "://" in job.runs else [("runs", options.runs_claim, options.runs_path)]),
    ]
    claims: list[dict[str, Any]] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim, _ in volumes
    ]
    mounts = [{"name": volume, "mountPath": path} for volume, _, path in volumes]
    if "://" in job.runs:  # the copy of the run on the first rank; each start fetches it from the store
        claims.append({"name": "runs", "emptyDir": {}})
        mounts.append({"name": "runs", "mountPath": options.runs_path})
    memory = {"medium": "Memory", "sizeLimit": options.shared_memory}
    given = {
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
        "nodeSelector": options.node_selector or None,
        "tolerations": None
        if job.on_cpu
        else [{"key": options.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(job.stop_timeout_seconds) + _LAST_SECONDS,
        "automountServiceAccountToken": options.service_account is not None,
        "enableServiceLinks": False,
        **{key: value for key, value in given.items() if value is not None},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": _CONTAINER,
                "image": options.image,
                "command": _command(job, options),
                "env": _environment(job, options, name),
                **({} if options.secret is None else {"envFrom": [{"secretRef": {"name": options.secret}}]}),
                "ports": [{"name": "rendezvous", "containerPort": _PORT}],
                "resources": _resources(job, options),
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [*mounts, {"name": "shared-memory", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [*claims, {"name": "shared-memory", "emptyDir": memory}],
    }


def _command(job: OuterJob, options: KubernetesSettings) -> list[str]:
    root = job.root if "://" in job.root else options.datasets_path
    runs = job.runs if "://" in job.runs else options.runs_path
    command = list(job.command("python", root, runs))
    if options.ranks_per_pod > 1:
        own = ("--ranks", str(options.ranks_per_pod), "--")
        command = python_module(kubernetes_pod.__name__, *own, *command, python="python")
    # Kubernetes replaces $(NAME) in commands; $$ stands for a dollar.
    return [part.replace("$", "$$") for part in command]


def _environment(job: OuterJob, options: KubernetesSettings, name: str) -> list[dict[str, Any]]:
    own = {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    return [
        *([own] if options.ranks_per_pod == 1 else []),
        {"name": "WORLD_SIZE", "value": str(job.count.most)},
        {"name": "MASTER_ADDR", "value": f"{name}-{_JOB}-0-0.{name}"},
        {"name": "MASTER_PORT", "value": str(_PORT)},
        *([{"name": "SHARDMILL_RUNS_COPY", "value": options.runs_path}] if "://" in job.runs else []),
    ]


def _resources(job: OuterJob, options: KubernetesSettings) -> dict[str, Any]:
    gpus = {} if job.on_cpu else {options.gpu_resource: str(options.ranks_per_pod)}
    return {
        "requests": {"cpu": options.cpus, "memory": options.memory, **gpus},
        "limits": {"memory": options.memory, **gpus},
    }
