"""Keep the parameters of schedules where Prefect cannot lose them, and give them back to emptied schedules.

`prefect deployment schedule pause` and `resume`, and the switch in Prefect's web interface, empty the
parameters of a schedule. Its runs would then fail before their flow begins. So the parameters of each
schedule are kept a second time (shardmill.flows.flow_runs.api_requests), under the id of the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardmill.flows.flow_runs.api_requests import forget_secret, keep_secret, read_secrets
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
        return not has_parameters(self.stored)


def has_parameters(stored: Any) -> bool:
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
            known = stored.parameters if has_parameters(stored) else kept.get(_name(stored.id), {})
            found.append(StoredSchedule(flow, deployment.id, stored, known))
    return found


def keep_parameters(schedule_id: object, parameters: Mapping[str, Any]) -> None:
    """Keep the parameters of a schedule that was just set."""
    keep_secret(_name(schedule_id), dict(parameters))


def heal_schedules(client: SyncPrefectClient) -> list[StoredSchedule]:
    """Give schedules that Prefect has emptied their parameters again; keep those of the others.

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
