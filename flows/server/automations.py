"""Automations of Prefect: rules that train after a version was published, and parameters of schedules.

`prefect deployment schedule pause` and `resume`, and the switch in Prefect's web interface, empty the
parameters of a schedule. Its runs would then fail before their flow begins. So the parameters of each
schedule are kept a second time (``api_requests``), under the id of the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shardmill.flows.flow_runs.api_requests import forget_secret, keep_secret, prefect_client, read_secrets
from shardmill.flows.flow_runs.events import OPEN, PUBLISHED, TRAINING, resource_id
from shardmill.flows.server.deployments import SCHEDULED_FLOWS, read_deployment
from shardmill.infra.errors import EnvironmentFault

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

NO_PARAMETERS = "it has lost its parameters"

_FLOWS = (*SCHEDULED_FLOWS, "train")
_PREFIX = "shardmill-schedule-"


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as Prefect stores it.

    Attributes:
        flow, deployment_id: what runs.
        stored: Prefect's own object.
        parameters: parameters of its runs, also if Prefect has lost them; empty: nobody knows them.
    """

    flow: str
    deployment_id: Any
    stored: Any
    parameters: Mapping[str, Any]

    @property
    def is_emptied(self) -> bool:
        """Whether Prefect has lost its parameters: each flow needs at least a dataset."""
        return not _has_parameters(self.stored)


def _has_parameters(stored: Any) -> bool:
    """Tell whether a schedule of Prefect has the parameters of its flow: each needs at least a dataset."""
    return "dataset" in stored.parameters


def stored_schedules(client: SyncPrefectClient, *flows: str) -> list[StoredSchedule]:
    """The schedules of these flows.

    Raises:
        EnvironmentFault: the server has no deployment of a flow.
    """
    return _stored(client, flows, read_secrets(client, _PREFIX))


def _stored(client: SyncPrefectClient, flows: Iterable[str], kept: Mapping[str, Any]) -> list[StoredSchedule]:
    found = []
    for flow in flows:
        deployment = read_deployment(client, flow)
        for stored in deployment.schedules:
            known = stored.parameters if _has_parameters(stored) else kept.get(_name(stored.id), {})
            found.append(StoredSchedule(flow, deployment.id, stored, known))
    return found


def keep_parameters(schedule_id: object, parameters: Mapping[str, Any]) -> None:
    """Keep the parameters of a schedule that was just set."""
    keep_secret(_name(schedule_id), dict(parameters))


def heal_schedules(client: SyncPrefectClient) -> list[StoredSchedule]:
    """Restore the parameters of schedules that Prefect emptied; save the parameters of the others.

    Returns:
        All schedules; those without parameters are those whose parameters nobody knows.
    """
    kept = read_secrets(client, _PREFIX)  # first: a schedule that is set meanwhile keeps its own
    found: list[StoredSchedule] = []
    is_complete = True
    for flow in _FLOWS:
        try:
            found += _stored(client, [flow], kept)
        except EnvironmentFault:  # its deployment is not registered, or not yet
            is_complete = False
    for one in found:
        if one.is_emptied and one.parameters:
            give_back(client, one)
        elif one.parameters and kept.get(_name(one.stored.id)) != dict(one.parameters):
            keep_parameters(one.stored.id, one.parameters)
    if is_complete:
        for name in kept.keys() - {_name(one.stored.id) for one in found}:
            forget_secret(client, name)
    return found


def give_back(client: SyncPrefectClient, schedule: StoredSchedule, *, active: bool | None = None) -> None:
    """Store a schedule with its parameters; paused or active as it was, unless ``active`` says otherwise.

    Prefect empties the parameters of a schedule that is updated without them.
    """
    client.update_deployment_schedule(
        schedule.deployment_id,
        schedule.stored.id,
        active=bool(schedule.stored.active) if active is None else active,
        parameters=dict(schedule.parameters),
    )


def _name(schedule_id: object) -> str:
    return f"{_PREFIX}{schedule_id}"


@dataclass(frozen=True, slots=True)
class TrainingRule:
    """Conditions for training on a dataset automatically.

    Attributes:
        dataset: its name.
        parameters: parameters of the flow `train`.
        every: how often to ask without an event.
        is_active: False while it is paused.
        problem: why it cannot train; empty: it can.
    """

    dataset: str
    parameters: Mapping[str, Any]
    every: timedelta
    is_active: bool = True
    problem: str = ""


def set_training_rule(rule: TrainingRule) -> bool:
    """Set the rule of a dataset in the place of an earlier one; paused if that one is.

    Returns:
        Whether it is active.

    Raises:
        EnvironmentFault: the server has no deployment `train`.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import IntervalSchedule
    from prefect.events.actions import RunDeployment
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    with prefect_client() as client:
        deployment, parameters = read_deployment(client, "train"), dict(rule.parameters)
        interval = IntervalSchedule(interval=rule.every)
        old = client.read_automations_by_name(_automation(rule.dataset))
        same = next((entry for entry in deployment.schedules if entry.slug == _slug(rule.dataset)), None)
        is_active = same is None or bool(same.active)
        if same is None:
            wanted = DeploymentScheduleCreate(
                schedule=interval, slug=_slug(rule.dataset), parameters=parameters, active=True
            )
            (same,) = client.create_deployment_schedules(deployment.id, [wanted])
        else:
            client.update_deployment_schedule(
                deployment.id, same.id, schedule=interval, parameters=parameters, active=is_active
            )
        keep_parameters(same.id, parameters)
        trigger = EventTrigger(
            expect={PUBLISHED},
            match={"prefect.resource.id": resource_id(rule.dataset), TRAINING: OPEN},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        )
        action = RunDeployment(source="selected", deployment_id=deployment.id, parameters=parameters)
        client.create_automation(
            AutomationCore(
                name=_automation(rule.dataset),
                description=f"Trains on new versions of {rule.dataset} when a condition holds",
                trigger=trigger,
                actions=[action],
                enabled=is_active,
            )
        )
        for automation in old:  # only now, so that a failure leaves the old rule
            client.delete_automation(automation.id)
    return is_active


def remove_training_rule(dataset: str) -> bool:
    """Remove the rule of a dataset; return whether there was one."""
    with prefect_client() as client:
        return _remove(client, dataset)


def set_rule_active(dataset: str, *, active: bool) -> bool:
    """Pause or resume the rule of a dataset; return whether there is one."""
    with prefect_client() as client:
        found = [one for one in stored_schedules(client, "train") if one.stored.slug == _slug(dataset)]
        for one in found:
            give_back(client, one, active=active)
        for automation in client.read_automations_by_name(_automation(dataset)):
            (client.resume_automation if active else client.pause_automation)(automation.id)
    return bool(found)


def training_rules() -> list[TrainingRule]:
    """All rules, sorted by dataset."""
    with prefect_client() as client:
        found = [as_rule(one) for one in stored_schedules(client, "train") if is_rule(one)]
    return sorted(found, key=lambda rule: rule.dataset)


def is_rule(one: StoredSchedule) -> bool:
    """Tell whether a schedule of Prefect belongs to a rule."""
    return (one.stored.slug or "").startswith(_slug(""))


def as_rule(one: StoredSchedule) -> TrainingRule:
    """The rule of a schedule of Prefect."""
    dataset = str(one.stored.slug).removeprefix(_slug(""))
    problem = "" if one.parameters else NO_PARAMETERS
    when, is_active = one.stored.schedule.interval, bool(one.stored.active)
    return TrainingRule(dataset, one.parameters, when, is_active, problem)


def _remove(client: SyncPrefectClient, dataset: str) -> bool:
    automations = client.read_automations_by_name(_automation(dataset))
    for automation in automations:
        client.delete_automation(automation.id)
    deployment = read_deployment(client, "train")
    stale = [entry for entry in deployment.schedules if entry.slug == _slug(dataset)]
    for entry in stale:
        client.delete_deployment_schedule(deployment.id, entry.id)
    return bool(automations or stale)


def _slug(dataset: str) -> str:
    return f"train-when-{dataset}"


def _automation(dataset: str) -> str:
    return f"shardmill: train on new versions of {dataset}"
