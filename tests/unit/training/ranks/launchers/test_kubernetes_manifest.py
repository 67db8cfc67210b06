"""The JobSet that trains on Kubernetes, by its published schema and by the rules of its controllers."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError
from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.launchers.kubernetes import FILE, jobset_name, render
from shardmill.training.ranks.launchers.settings import KubernetesSettings
from tests.samples.clusters.kubernetes_rules import job_failure, jobset_action
from tests.samples.clusters.kubernetes_schemas import check_jobset
from tests.samples.ranks.outer_jobs import outer_job

POD = "shardmill.training.ranks.launchers.kubernetes_pod"
TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1)
EVERYTHING = KubernetesSettings(
    image="registry.example.org:5000/vision/train@sha256:0123",
    namespace="vision",
    cpus="7500m",
    memory="60Gi",
    secret="bucket",
    service_account="trainer",
    priority_class="low",
    node_selector={"cloud.example.org/gpu": "a100"},
    queue="team",
)


def manifest(options: KubernetesSettings | None = None, **job: Any) -> dict[str, Any]:
    text = render(outer_job(**job), options or KubernetesSettings()).files[FILE]
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def parts(jobset: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The Job, its pod and its container."""
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return job, pod, container


def test_the_file_is_handed_over_by_kubectl() -> None:
    files = render(outer_job(), KubernetesSettings())
    assert files.submit == ("kubectl", "create", "-f", "jobset.yaml")


@pytest.mark.parametrize("options", [KubernetesSettings(), EVERYTHING])
@pytest.mark.parametrize("job", [{}, {"on_cpu": False, "count": RankCount(64, 64), "root": "s3://data/sets"}])
def test_manifests_fulfil_the_schema_of_jobset(options: KubernetesSettings, job: dict[str, Any]) -> None:
    check_jobset(manifest(options, **job))


def test_the_schema_refuses_what_jobset_does_not_know() -> None:
    wrong = manifest()
    wrong["spec"]["failurePolicy"]["rules"][0]["onJobFailureMessages"] = ["x"]
    with pytest.raises(jsonschema.ValidationError, match="onJobFailureMessages"):
        check_jobset(wrong)
    wrong = manifest()
    parts(wrong)[2]["resources"]["limit"] = {}
    with pytest.raises(jsonschema.ValidationError, match="limit"):
        check_jobset(wrong)


@pytest.mark.parametrize(
    ("exit_code", "action"),
    [
        (2, "FailJobSet"),
        (3, "FailJobSet"),
        (130, "FailJobSet"),
        (75, "RestartJobSetAndIgnoreMaxRestarts"),
        (4, "RestartJobSet"),
        (1, "RestartJobSet"),
        (20, "RestartJobSet"),
        (137, "RestartJobSet"),  # SIGKILL, such as from the kernel when memory runs out
        (134, "RestartJobSet"),
    ],
)
def test_exit_statuses_become_actions_of_the_jobset(exit_code: int, action: str) -> None:
    jobset = manifest()
    failure = job_failure(parts(jobset)[0], exit_code)
    assert jobset_action(jobset["spec"]["failurePolicy"], *failure) == action


@pytest.mark.parametrize("exit_code", [4, 75, 137, 143])
def test_a_node_that_is_taken_away_costs_no_restart(exit_code: int) -> None:
    jobset = manifest()
    failure = job_failure(parts(jobset)[0], exit_code, disrupted=True)
    action = jobset_action(jobset["spec"]["failurePolicy"], *failure)
    assert action == "RestartJobSetAndIgnoreMaxRestarts"


def test_older_releases_of_jobset_never_repeat_wrong_settings() -> None:
    jobset = manifest()
    failure = job_failure(parts(jobset)[0], 2)
    action = jobset_action(jobset["spec"]["failurePolicy"], *failure, reads_messages=False)
    assert action == "FailJobSet"


def test_pods_are_ranks_and_find_the_first_by_its_name() -> None:
    jobset = manifest(count=RankCount(3, 3))
    job, pod, container = parts(jobset)
    name = jobset["metadata"]["name"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    assert pod["restartPolicy"] == "Never"
    variables = {each["name"]: each for each in container["env"]}
    assert variables["WORLD_SIZE"]["value"] == "3"
    assert variables["MASTER_ADDR"]["value"] == f"{name}-ranks-0-0.{name}"
    assert "job-completion-index" in variables["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]


def test_pods_have_no_rights_and_time_to_save() -> None:
    _, pod, container = parts(manifest(stop_timeout_seconds=300.5))
    assert pod["terminationGracePeriodSeconds"] > 300
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_each_rank_on_gpus_has_one() -> None:
    _, pod, container = parts(manifest(on_cpu=False))
    for kind in ("requests", "limits"):
        assert container["resources"][kind]["nvidia.com/gpu"] == "1"
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "nvidia.com/gpu" not in parts(manifest())[2]["resources"]["limits"]


def test_pods_with_several_ranks_have_a_gpu_for_each() -> None:
    options = KubernetesSettings(ranks_per_pod=4)
    jobset = manifest(options, on_cpu=False, count=RankCount(8, 8))
    job, _, container = parts(jobset)
    assert (job["completions"], job["parallelism"]) == (2, 2)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert container["command"][:7] == ["python", "-P", "-m", POD, "--ranks", "4", "--"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["WORLD_SIZE"] == "8"
    assert "RANK" not in variables
    check_jobset(jobset)
    with pytest.raises(ConfigError, match="do not fill pods"):
        manifest(options, count=RankCount(6, 6))


def test_datasets_in_an_object_store_need_no_claim() -> None:
    _, pod, container = parts(manifest(root="s3://bucket/datasets"))
    assert {volume["name"] for volume in pod["volumes"]} == {"runs", "shared-memory"}
    assert "s3://bucket/datasets" in container["command"]


def test_runs_in_an_object_store_need_no_claim_and_a_place_for_their_copy() -> None:
    options = KubernetesSettings(runs_path="/copies")
    jobset = manifest(options, root="s3://bucket/datasets", runs="s3://bucket/runs")
    check_jobset(jobset)
    _, pod, container = parts(jobset)
    assert [volume for volume in pod["volumes"] if volume["name"] == "runs"] == [
        {"name": "runs", "emptyDir": {}}
    ]
    assert {"name": "runs", "mountPath": "/copies"} in container["volumeMounts"]
    assert {"name": "SHARDMILL_RUNS_COPY", "value": "/copies"} in container["env"]
    assert container["command"][container["command"].index("--runs") + 1] == "s3://bucket/runs"


def test_a_range_of_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"2\.\.4"):
        manifest(count=RankCount(2, 4))


def expanded(text: str, variables: dict[str, str]) -> str:
    """Expand variables as Kubernetes does: $(NAME) if NAME is known; $$ becomes a dollar sign."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda found: "$" if found[1] is None else variables.get(found[1], found[0]),
        text,
    )


@settings(max_examples=40, deadline=None)
@example("$(RANK) $$(RANK) $$ ${HOME} $", "'\": [x]\n- y\n# %", "..Photos_\u00e9-" * 20)
@given(dataset=TEXTS, config_json=TEXTS, name=TEXTS)
def test_settings_reach_the_command_as_they_are(dataset: str, config_json: str, name: str) -> None:
    jobset = manifest(dataset=dataset, config_json=config_json, name=name)
    command = [expanded(part, {"RANK": "1"}) for part in parts(jobset)[2]["command"]]
    job = outer_job(dataset=dataset, config_json=config_json)
    assert command == list(job.command("python", "/data/datasets", "/data/runs"))
    check_jobset(jobset)


@settings(max_examples=300)
@given(run=TEXTS, num_ranks=st.sampled_from([1, 2, 1000, 100_000]))
def test_names_of_pods_fit_into_a_label_of_dns(run: str, num_ranks: int) -> None:
    name = jobset_name(run, num_ranks)
    pod = f"{name}-ranks-0-{num_ranks - 1}-abcde"
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", pod)
    assert len(pod) <= 63


def test_different_runs_have_different_names() -> None:
    runs = [
        "photos-v3-0123456789",
        "Photos-v3-0123456789",
        "photos_v3-0123456789",
        "photos" * 9 + "-v3-0",
        "3",
    ]
    runs += ["photos" * 9 + "-v3-1"]
    assert len({jobset_name(run, 8) for run in runs}) == len(runs)
    assert jobset_name(runs[0], 8) == runs[0]


@pytest.mark.parametrize(
    "values",
    [
        {"name": "Photos"},
        {"name": "a" * 41},
        {"image": "a b"},
        {"image": "x\n"},
        {"memory": "lots"},
        {"namespace": "a/b"},
        {"runs_path": "data"},
        {"node_selector": {"a b": "c"}},
        {"node_selector": {"a": "b\n"}},
    ],
)
def test_settings_that_kubernetes_would_refuse_are_errors(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        KubernetesSettings.model_validate(values)
