"""Requests to Prefect's API that several parts need: pages of an answer, runs in progress, kept values."""

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


def read_secrets(client: SyncPrefectClient, prefix: str) -> dict[str, Any]:
    """Name -> value of all blocks of ``keep_secret`` whose name begins so."""
    return {row["name"]: row["data"]["value"] for row in _rows(client, prefix) if "value" in row["data"]}


def keep_secret(name: str, value: Any) -> None:
    """Keep a JSON-able value of any size, encrypted, in a block of Prefect in the place of an earlier one."""
    from prefect.blocks.system import Secret

    Secret(value=value).save(name, overwrite=True)


def forget_secret(client: SyncPrefectClient, name: str) -> bool:
    """Delete the block of a name, of whatever type; tell whether there was one."""
    rows = [row for row in _rows(client, name) if row["name"] == name]
    for row in rows:
        client.delete_block_document(row["id"])
    return bool(rows)


def read_block(client: SyncPrefectClient, name: str) -> dict[str, Any] | None:
    """The fields of the block of a name, of whatever type, with its secrets; None if there is none."""
    found = [row["data"] for row in _rows(client, name) if row["name"] == name]
    return dict(found[0]) if found else None


def _rows(client: SyncPrefectClient, prefix: str) -> list[dict[str, Any]]:
    def page(limit: int, offset: int) -> list[dict[str, Any]]:
        wanted = {
            "block_documents": {"name": {"like_": prefix}},
            "include_secrets": True,
            "limit": limit,
            "offset": offset,
        }
        answer = client.request("POST", "/block_documents/filter", json=wanted).raise_for_status()
        rows: list[dict[str, Any]] = answer.json()
        return rows

    return [row for row in all_pages(page) if row["name"].startswith(prefix)]
