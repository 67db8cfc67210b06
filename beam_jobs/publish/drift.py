"""Compare a version that is about to be published with the one before it: warn, or stop."""

from __future__ import annotations

from collections.abc import Sequence

from shardmill.beam_jobs.config.planning import DriftConfig
from shardmill.infra.dataset.drift.figures import Drift, DriftFigure
from shardmill.infra.dataset.drift.measuring import measure
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError, DriftExceeded, EnvironmentFault
from shardmill.infra.progress import log

_SHOWN = 6


def check_drift(before: DatasetVersion | None, after: DatasetVersion, config: DriftConfig) -> Drift | None:
    """Compare a version with the one before it, and warn of figures beyond their limits.

    Args:
        before: the version that it was planned on top of; None if it is the first.
        after: the version, whose shards and inputs are written.
        config: the limits, and the action beyond them.

    Returns:
        The figures; None if there is nothing to compare, or the version before cannot be read.

    Raises:
        DriftExceeded: a figure is beyond its limit, and ``drift.action`` is "stop".
    """
    if before is None or config.action == "off":
        return None
    try:
        drift = measure(before, after, config)
    except (DataError, EnvironmentFault) as error:
        log(f"{after.ref} is not compared with {before.ref}: {error.message}", level="warning")
        return None
    if drift.exceeded and config.action == "stop":
        raise DriftExceeded(
            f"{drift.after} would differ from {drift.before} more than [prepare.drift] allows: "
            f"{'; '.join(_sentences(drift.exceeded))}; nothing was published",
            f"look at the new images; if they are as they should be, publish them with --set "
            f"drift.action=warn, or raise {_settings(drift.exceeded)}: no image is encoded again",
        )
    for text in _sentences(drift.exceeded):
        log(f"drift since {drift.before}: {text}", level="warning")
    return drift


def _sentences(figures: Sequence[DriftFigure]) -> list[str]:
    shown = [str(figure) for figure in figures[:_SHOWN]]
    return shown + ([f"and {len(figures) - _SHOWN} more figures"] if len(figures) > _SHOWN else [])


def _settings(figures: Sequence[DriftFigure]) -> str:
    """Return the names of the limits that these figures exceed."""
    names = {f"drift.{figure.group}" for figure in figures}
    if any(figure.scope == "all" for figure in figures):
        names.add("drift.whole")
    return " and ".join(sorted(names))
