"""Train automatically when a dataset has changed: an automation and a schedule.

The automation follows the event of a new version. An event may be lost, and days pass without one, so the
schedule asks too. Both start the deployment `train` with the same conditions; the run itself decides whether
a training is due (shardmill.flows.train_when).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shardmill.flows.flow_runs.events import OPEN, PUBLISHED, TRAINING, resource_id
from shardmill.flows.server.automations.schedule_parameters import (
    NO_PARAMETERS,
    StoredSchedule,
    give_back,
    keep_parameters,
    stored_schedules,
)
from shardmill.flows.server.deployments import read_deployment

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


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
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import IntervalSchedule
    from prefect.events.actions import RunDeployment
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    with get_client(sync_client=True) as client:
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
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return _remove(client, dataset)


def set_rule_active(dataset: str, *, active: bool) -> bool:
    """Pause or resume the rule of a dataset; return whether there is one."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        found = [one for one in stored_schedules(client, "train") if one.stored.slug == _slug(dataset)]
        for one in found:
            give_back(client, one, active=active)
        for automation in client.read_automations_by_name(_automation(dataset)):
            (client.resume_automation if active else client.pause_automation)(automation.id)
    return bool(found)


def training_rules() -> list[TrainingRule]:
    """All rules, sorted by dataset."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
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
