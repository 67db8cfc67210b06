"""Train automatically when a dataset has changed: an automation and a schedule.

The automation follows the event of a new version. An event may be lost, and days pass without one, so the
schedule asks too. Both start the deployment `train` with the same conditions; the run itself decides whether
a training is due (flows.train_when).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from flows.flow_runs.events import OPEN, PUBLISHED, TRAINING, resource_id
from infra.errors import EnvironmentFault

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_DEPLOYMENT = "train/train"


@dataclass(frozen=True, slots=True)
class TrainingRule:
    """Conditions for training on a dataset automatically.

    Attributes:
        dataset: its name.
        parameters: of the flow `train`.
        every: how often to ask without an event.
        is_active: False while it is paused.
    """

    dataset: str
    parameters: Mapping[str, Any]
    every: timedelta
    is_active: bool = True


def set_training_rule(rule: TrainingRule) -> None:
    """Set the rule of a dataset; an earlier one is replaced.

    Raises:
        EnvironmentFault: the server has no deployment `train`.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import IntervalSchedule
    from prefect.events.actions import RunDeployment
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    with get_client(sync_client=True) as client:
        deployment, parameters = _deployment(client), dict(rule.parameters)
        interval = IntervalSchedule(interval=rule.every)
        old = client.read_automations_by_name(_automation(rule.dataset))
        same = next((entry for entry in deployment.schedules if entry.slug == _slug(rule.dataset)), None)
        if same is None:
            wanted = DeploymentScheduleCreate(
                schedule=interval, slug=_slug(rule.dataset), parameters=parameters, active=True
            )
            client.create_deployment_schedules(deployment.id, [wanted])
        else:
            client.update_deployment_schedule(
                deployment.id, same.id, schedule=interval, parameters=parameters, active=True
            )
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
            )
        )
        for automation in old:  # only now, so that a failure leaves the old rule
            client.delete_automation(automation.id)


def remove_training_rule(dataset: str) -> bool:
    """Remove the rule of a dataset; return whether there was one."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return _remove(client, dataset)


def set_rule_active(dataset: str, *, active: bool) -> bool:
    """Pause or resume the rule of a dataset; return whether there is one."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        deployment = _deployment(client)
        found = [entry for entry in deployment.schedules if entry.slug == _slug(dataset)]
        for entry in found:
            # Prefect empties the parameters of a schedule that is updated without them.
            client.update_deployment_schedule(
                deployment.id, entry.id, active=active, parameters=entry.parameters
            )
        for automation in client.read_automations_by_name(_automation(dataset)):
            (client.resume_automation if active else client.pause_automation)(automation.id)
    return bool(found)


def training_rules() -> list[TrainingRule]:
    """All rules, sorted by dataset."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        found = [
            TrainingRule(
                str(entry.parameters["dataset"]),
                entry.parameters,
                entry.schedule.interval,
                bool(entry.active),
            )
            for entry in _deployment(client).schedules
            if (entry.slug or "").startswith(_slug(""))
        ]
    return sorted(found, key=lambda rule: rule.dataset)


def _remove(client: SyncPrefectClient, dataset: str) -> bool:
    automations = client.read_automations_by_name(_automation(dataset))
    for automation in automations:
        client.delete_automation(automation.id)
    deployment = _deployment(client)
    stale = [entry for entry in deployment.schedules if entry.slug == _slug(dataset)]
    for entry in stale:
        client.delete_deployment_schedule(deployment.id, entry.id)
    return bool(automations or stale)


def _deployment(client: SyncPrefectClient) -> Any:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(_DEPLOYMENT)
    except ObjectNotFound as error:
        raise EnvironmentFault(
            f"the server has no deployment {_DEPLOYMENT}", "start `shardmill up`, which registers it"
        ) from error


def _slug(dataset: str) -> str:
    return f"train-when-{dataset}"


def _automation(dataset: str) -> str:
    return f"shardmill: train on new versions of {dataset}"
