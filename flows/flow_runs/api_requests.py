"""Requests to Prefect's API that several parts need: all pages of an answer, runs in progress, variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.filters import FlowRunFilterState

T = TypeVar("T")

_PAGE = 200  # Prefect gives no more at once


def all_pages(read: Callable[[int, int], Sequence[T]]) -> list[T]:
    """The items of all pages.

    Args:
        read: returns the items of a page; called with the largest number of them, and the number before it.
    """
    found: list[T] = []
    while len(found) % _PAGE == 0:
        page = read(_PAGE, len(found))
        if not page:
            break
        found += page
    return found


def in_progress() -> FlowRunFilterState:
    """The filter of Prefect's API that finds runs that have begun and have not ended."""
    from prefect.client.schemas.filters import FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType

    begun = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=begun))


def set_variable(client: SyncPrefectClient, name: str, value: dict[str, Any], tag: str) -> None:
    """Create a variable of Prefect, or replace its value."""
    from prefect.client.schemas.actions import VariableCreate, VariableUpdate

    if client.read_variable_by_name(name) is None:
        client.create_variable(VariableCreate(name=name, value=value, tags=[tag]))
    else:
        client.update_variable(VariableUpdate(name=name, value=value))
