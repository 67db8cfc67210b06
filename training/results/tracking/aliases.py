"""Tell MLflow that an alias was moved to a run. A failure costs a warning, never the move."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from shardmill.infra import progress as events
from shardmill.infra.extras import install

if TYPE_CHECKING:
    from shardmill.training.aliases.record import AliasRecord


def tell_trackers(run_dir: Path, record: AliasRecord) -> None:
    """Give the model version that a run registered in MLflow the same alias, where tracking is on.

    Args:
        run_dir: the folder of the run that has the alias now.
        record: the record of the move.
    """
    if not os.environ.get("MLFLOW_TRACKING_URI"):
        return
    if importlib.util.find_spec("mlflow") is None:
        events.log(f"MLflow is not told of the alias: {install('mlflow')}", level="warning")
        return
    try:
        from shardmill.training.results.tracking.mlflow import give_alias

        given = give_alias(run_dir, record.alias)
    except Exception as error:  # noqa: BLE001  a client may raise anything; the alias is moved already
        said = (str(error).splitlines() or [type(error).__name__])[0][:300]
        events.log(f"MLflow was not told of the alias {record.alias}: {said}", level="warning")
        return
    if given is None:
        events.log(
            f"MLflow has no registered model of {record.run}, so the alias {record.alias} is only ours: "
            "tracking.registered_model registers it when it trains"
        )
    else:
        events.log(f"MLflow: {given} has the alias {record.alias}")
