"""The tracking systems of a run. One that fails costs a warning, never the run."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.extras import install
from shardmill.training.results.run_files.history import flat
from shardmill.training.results.tracking.tracked import TrackedRun, Tracker

_WANDB_VARIABLES = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_BASE_URL")


class Trackers:
    """Tells all systems that are switched on. A context manager that takes leave of them."""

    def __init__(self, run: TrackedRun | None) -> None:
        """Find the systems that are switched on, and tell them that the run begins or goes on.

        Args:
            run: the run; None: nobody is told, as in ranks other than the first.
        """
        self._trackers: list[Tracker] = []
        self._is_finished = False
        if run is None:
            return
        for name, (is_asked, module, remedy, begin) in _SYSTEMS.items():
            if not is_asked():
                continue
            if importlib.util.find_spec(module) is None:
                events.log(f"{name} is not told about this run: {remedy}", level="warning")
            else:
                self._try(name, lambda begin=begin: self._trackers.append(begin(run)))  # type: ignore[misc]

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell(lambda tracker: tracker.close(is_finished=self._is_finished))

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Tell of an epoch: a row of the history of a run."""
        figures = flat(dict(row))
        self._tell(lambda tracker: tracker.epoch(figures))

    def end(self, result: Mapping[str, Any]) -> None:
        """Tell that the run has finished."""
        self._is_finished = True
        self._tell(lambda tracker: tracker.end(result))

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            if not self._try(tracker.name, lambda tracker=tracker: what(tracker)):  # type: ignore[misc]
                self._trackers.remove(tracker)

    def _try(self, name: str, action: Callable[[], object]) -> bool:
        try:
            action()
        except Exception as error:  # noqa: BLE001  a client may raise anything; the run must go on
            said = (str(error).splitlines() or [type(error).__name__])[0][:300]
            events.log(f"{name} failed, and the run goes on without it: {said}", level="warning")
            return False
        return True


def _mlflow(run: TrackedRun) -> Tracker:
    from shardmill.training.results.tracking.mlflow import MLflowTracker

    return MLflowTracker(run)


def _wandb(run: TrackedRun) -> Tracker:
    from shardmill.training.results.tracking.wandb import WandbTracker

    return WandbTracker(run)


def _wandb_is_asked() -> bool:
    mode = os.environ.get("WANDB_MODE")
    return mode != "disabled" and any(os.environ.get(name) for name in _WANDB_VARIABLES)


# name -> (whether it is switched on, its module, what to do if that is missing, the tracker)
_SYSTEMS: dict[str, tuple[Callable[[], bool], str, str, Callable[[TrackedRun], Tracker]]] = {
    "MLflow": (
        lambda: bool(os.environ.get("MLFLOW_TRACKING_URI")),
        "mlflow",
        f"MLFLOW_TRACKING_URI is set, but mlflow-skinny is not installed: {install('mlflow')}",
        _mlflow,
    ),
    "Weights & Biases": (
        _wandb_is_asked,
        "wandb",
        f"its variables are set, but wandb is not installed: {install('wandb')}",
        _wandb,
    ),
}
