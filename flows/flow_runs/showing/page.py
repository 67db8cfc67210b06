"""Create the artifacts of a flow run, and update them in place. Those of one key are a series in Prefect."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from pydantic import BaseModel

from shardmill.flows.flow_runs.api_requests import answers, prefect_client, run_filter
from shardmill.flows.flow_runs.showing.markdown import table_rows
from shardmill.infra.digests import digest_of
from shardmill.infra.strict_json import dump_json

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_DIGEST_LENGTH = 6


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a run: ``<dataset>-<settings>-<subject>``.

    Runs of one dataset with the same settings share a series, and no others. ``<settings>`` is a digest of
    the settings that differ from the defaults; without any it is left out.

    Attributes:
        series: all before the subject.
    """

    series: str

    @classmethod
    def of(cls, dataset: str, *settings: BaseModel) -> Keys:
        """Return the keys of runs on a dataset with these settings."""
        changed = [one.model_dump(mode="json", exclude_defaults=True) for one in settings]
        digest = digest_of(changed, length=_DIGEST_LENGTH) if any(changed) else ""
        return cls(f"{dataset}-{digest}")

    def key(self, subject: str) -> str:
        """Return the key of a subject: lower-case letters, digits and dashes, as Prefect wants them."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.series}-{subject}".lower()).strip("-")


_log = logging.getLogger(__name__)


class RunPage:
    """The artifacts of some flow runs. An artifact that cannot be shown is logged, and fails no run.

    An artifact of the same key is updated, not created again: the database keeps one row of it. Each request
    to a server that is gone takes a minute to fail, so after the first one pages wait until it answers.
    """

    _fails: ClassVar[bool] = False  # the last request of any page

    def __init__(self, flow_run_ids: Sequence[UUID]) -> None:
        """Show everything on the pages of these runs."""
        self._runs = list(flow_run_ids)
        self._known: dict[tuple[UUID, str], UUID] = {}

    @classmethod
    def of_this_run(cls, *, with_parent: bool = False) -> RunPage:
        """Return the page of the current run; ``with_parent`` shows everything on its parent's page too."""
        from prefect.runtime import flow_run

        ids = [flow_run.id, flow_run.parent_flow_run_id if with_parent else None]
        return cls([UUID(found) for found in ids if found])

    def markdown(self, key: str, text: str, description: str) -> None:
        """Show Markdown."""
        self._show(key, "markdown", text, description)

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
        """Show a table, which a person can search."""
        self._show(key, "table", dump_json(table_rows(rows)), description)

    def progress(self, key: str, percent: float, description: str) -> None:
        """Show how far something is."""
        self._show(key, "progress", percent, description)

    def sub_runs(self) -> list[UUID]:
        """Return the runs inside these runs, the first one first."""
        from prefect.client.schemas.sorting import FlowRunSort

        inside = run_filter(parent_flow_run_id={"any_": self._runs})
        try:
            with prefect_client() as client:
                found = client.read_flow_runs(flow_run_filter=inside, sort=FlowRunSort.START_TIME_ASC)
        except Exception as error:  # noqa: BLE001  as in _show
            _log.warning("cannot ask Prefect for the runs inside this one: %s", error)
            return []
        return [run.id for run in found]

    def _show(self, key: str, kind: str, data: Any, description: str) -> None:
        if not self._runs or (RunPage._fails and not answers(_api_url())):
            return
        try:
            with prefect_client() as client:
                for run_id in self._runs:
                    self._show_on(client, run_id, key, kind, data, description)
            RunPage._fails = False
        except Exception as error:  # noqa: BLE001  the job must not fail because something cannot be shown
            if not RunPage._fails:  # log one warning until it works again
                _log.warning("cannot show %s in Prefect: %s", key, error)
            RunPage._fails = True

    def _show_on(
        self, client: SyncPrefectClient, run_id: UUID, key: str, kind: str, data: Any, description: str
    ) -> None:
        from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate

        artifact = self._known.get((run_id, key)) or _find(client, run_id, key)
        if artifact is None:
            new = ArtifactCreate(key=key, type=kind, data=data, description=description, flow_run_id=run_id)
            artifact = client.create_artifact(new).id
        else:
            client.update_artifact(artifact, ArtifactUpdate(data=data, description=description))
        self._known[run_id, key] = artifact


def _api_url() -> str:
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value() or ""


def _find(client: SyncPrefectClient, run_id: UUID, key: str) -> UUID | None:
    """Return the artifact that an earlier attempt of the run made; None: there is none."""
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey

    wanted = ArtifactFilter(
        key=ArtifactFilterKey(any_=[key]), flow_run_id=ArtifactFilterFlowRunId(any_=[run_id])
    )
    found = client.read_artifacts(artifact_filter=wanted, limit=1)
    return found[0].id if found else None
