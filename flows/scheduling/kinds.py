"""Recognise runs of a flow that do the same work, also if only one of them names the default values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from shardmill.flows.parameters import root_or_default, runs_or_default
from shardmill.infra.digests import digest_of

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import FlowRun

AUTOMATIC_TAG = "automatic"  # tag of runs that an inbox started


_SETTINGS = {"config", "prepare_config", "train_config"}


def is_automatic(run: FlowRun) -> bool:
    """Tell whether a schedule, an inbox or an automation made the run, and not a person."""
    by_automation = run.created_by is not None and run.created_by.type == "AUTOMATION"
    return run.auto_scheduled or by_automation or AUTOMATIC_TAG in run.tags


def kind_of(flow: Flow[..., Any], parameters: Mapping[str, Any]) -> str:
    """Return a digest; equal digests mean that the flow does the same work with both sets of parameters."""
    from prefect.exceptions import ParameterBindError, ParameterTypeError, SignatureMismatchError

    try:
        given = flow.validate_parameters(dict(parameters))
    except (ParameterBindError, ParameterTypeError, SignatureMismatchError, TypeError):
        return digest_of([flow.name, dict(parameters)])
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(flow.fn).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    values = {name: _plain(value) for name, value in {**defaults, **given}.items()}
    for name in _SETTINGS & values.keys():
        values[name] = values[name] or {}  # empty settings are the defaults
    for name, or_default in (("root", root_or_default), ("runs", runs_or_default)):
        if name in values:
            values[name] = or_default(values[name])
    return digest_of([flow.name, values])


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, BaseModel) else value
