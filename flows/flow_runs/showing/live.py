"""Show a job on the page of its run while it runs: progress, and the curve of a training."""

from __future__ import annotations

import contextvars
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from shardmill.flows.flow_runs.showing import training_curve
from shardmill.flows.flow_runs.showing.markdown import escaped, picture, svg_uri, table
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.infra.errors import ShardmillError
from shardmill.infra.progress import Event
from shardmill.infra.whole_job import WholeJob
from shardmill.training.results.run_files.curve import CURVE_FILE

_UPDATE_SECONDS = 2.0
_CURVE_SECONDS = 5.0
_JOIN_SECONDS = 15.0
_NEWS_SECONDS = 5.0


class LivePage:
    """The live artifacts of a job, updated every few seconds.

    A separate thread talks to the server, so that a slow or absent server never delays the job.
    """

    def __init__(self, page: RunPage, keys: Keys, job: str) -> None:
        """Show the job ``job`` on ``page``."""
        self._page, self._keys, self._name = page, keys, job
        self._whole = WholeJob()
        self._run_dir: Path | None = None
        self._heard = time.monotonic()
        self._end: str | None = None
        self._done = threading.Event()
        # The context of this thread holds Prefect's settings.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._publish,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            said = error.message if isinstance(error, ShardmillError) else kind.__name__ if kind else ""
            self._end = f"{self._name} ended: {said.splitlines()[0] if said else ''}"
        self._done.set()
        self._thread.join(timeout=_JOIN_SECONDS)

    def take(self, event: Event) -> None:
        """Take an event of the job into account; the next update shows it."""
        self._whole.take(event)
        self._heard = time.monotonic()
        if event.get("event") == "job" and "run_dir" in event:
            self._run_dir = Path(event["run_dir"])

    def end(self, text: str) -> None:
        """Show at the end that the whole job is done, and its result."""
        self._whole.share = 1.0
        self._end = text

    def counts(self, stage: str) -> bool:
        """Return whether the job's share grows with a stage."""
        return self._whole.counts(stage)

    @property
    def text(self) -> str:
        """The progress of the job, in words."""
        return self._whole.text() if self._whole.stage or self._whole.waits_until else "starting"

    @property
    def percent(self) -> float:
        """The progress of the job."""
        return 100.0 * self._whole.share

    def _publish(self) -> None:
        shown, drawn_at, drawn = None, 0.0, None
        while True:
            last = self._done.wait(_UPDATE_SECONDS if shown else 0.0)
            latest = self.percent, self._end or self._words()
            if latest != shown:
                self._page.progress(self._keys.key(f"{self._name}-progress"), latest[0], escaped(latest[1]))
                shown = latest
            if last or time.monotonic() - drawn_at >= _CURVE_SECONDS:
                drawn_at, changed = time.monotonic(), _changed_at(self._run_dir)
                if changed != drawn:
                    self._show_curve(changed)
                    drawn = changed
            if last:
                return

    def _words(self) -> str:
        if self._whole.waits_until:
            return self.text
        return f"{self.percent:.0f} %, {with_age(self.text, self._heard)}"

    def _show_curve(self, changed: tuple[float, int]) -> None:
        if self._run_dir is None or not changed[1]:
            return
        points = training_curve.points_of(self._run_dir)
        if points:
            title = f"Training in {self._run_dir.name}"
            card = picture(title, svg_uri(training_curve.quality_svg(title, points)))
            self._page.markdown(self._keys.key("training-curve"), curve_text(points), card)


def curve_text(points: training_curve.Points) -> str:
    """Return the latest figures of a training, and its curves of speed, memory and ranks, as Markdown."""
    parts = [table(training_curve.latest_rows(points))]
    pictures = {
        "Learning rate, speed and memory": training_curve.speed_svg("Speed and memory", points),
        "Ranks": training_curve.ranks_svg("Ranks", points),
    }
    for title, svg in pictures.items():
        if svg:
            parts.append(picture(title, svg_uri(svg)))
    if ranks := training_curve.rank_rows(points):
        parts.append(table(ranks))
    return "\n\n".join(parts)


def with_age(text: str, heard: float) -> str:
    """Return the text, with the age of old news, so that a long block does not look stuck."""
    age_seconds = time.monotonic() - heard
    return text if age_seconds < _NEWS_SECONDS else f"{text} ({age_seconds:.0f} s ago)"


def _changed_at(run_dir: Path | None) -> tuple[float, int]:
    """Return the time of the last change of a run's curve, and its length."""
    try:
        found = (run_dir / CURVE_FILE).stat() if run_dir is not None else None
    except OSError:
        found = None
    return (found.st_mtime, found.st_size) if found is not None else (0.0, 0)
