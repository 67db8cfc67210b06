"""Tell Prefect that a version was published or an alias decided about, so that automations can follow."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from shardmill.infra.dataset.views.references import reference_of

PUBLISHED = "shardmill.dataset.published"
MOVED, KEPT = "shardmill.alias.moved", "shardmill.alias.kept"
# A label of the resource. "follows": the flow run that published also trains, so nothing else need start.
TRAINING, FOLLOWS, OPEN = "shardmill.training", "follows", "open"

_log = logging.getLogger(__name__)


def resource_id(dataset: str) -> str:
    """The id of a dataset as a resource of events."""
    return f"shardmill.dataset.{dataset}"


def emit_published(result: Mapping[str, Any]) -> None:
    """Emit the event that a version was published.

    Args:
        result: The result of the prepare job.
    """
    from prefect.runtime import flow_run

    dataset = str(result["dataset"])
    _emit(
        PUBLISHED,
        resource={
            "prefect.resource.id": resource_id(dataset),
            "prefect.resource.name": reference_of(result),
            TRAINING: FOLLOWS if flow_run.parent_flow_run_id else OPEN,
        },
        payload={
            "dataset": dataset,
            "version": result["version"],
            "splits": {name: split["num_examples"] for name, split in result["splits"].items()},
        },
    )


def emit_decided(result: Mapping[str, Any]) -> None:
    """Emit the event that an alias was moved, or stayed although a run was a candidate for it.

    Args:
        result: The result of the promote job. Nothing is emitted if the same was decided before.
    """
    if result["unchanged"]:
        return
    record = result["record"]
    _emit(
        MOVED if result["moved"] else KEPT,
        resource={
            "prefect.resource.id": f"shardmill.alias.{record['dataset']}.{record['alias']}",
            "prefect.resource.name": str(result["alias"]),
        },
        payload={
            name: record[name]
            for name in ("dataset", "alias", "run", "predecessor", "trained_on", "verdict", "reason", "by")
        },
    )


def _emit(event: str, resource: dict[str, str], payload: dict[str, Any]) -> None:
    """Emit an event; log a warning if that fails, because the run itself did not fail."""
    from prefect.events import emit_event

    try:
        emit_event(event=event, resource=resource, payload=payload)
    except Exception as error:  # noqa: BLE001  a client may raise anything
        _log.warning("Prefect was not told of %s: %s", event, error)
