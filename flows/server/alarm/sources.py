"""Look whether the folders of schedules and inboxes can still be listed.

Without this, a folder that is deleted, unmounted, unreadable or behind expired credentials would look like a
folder without new files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from shardmill.flows.problems import Problem, set_problems
from shardmill.flows.scheduling.source_state import probe
from shardmill.flows.server.alarm.kept_file import KeptFile
from shardmill.infra.digests import digest_of
from shardmill.infra.storage.locations import public_location

_EVERY_SECONDS, _EVERY_SECONDS_OF_INBOX = 10.0, 20.0
_SHARE_OF_TIME, _LONGEST_PAUSE_SECONDS = 0.05, 60.0  # so much of the time is spent on listing
_HANGS_SECONDS = 30.0


@dataclass
class _Look:
    """The state of listing one source.

    Attributes:
        text: the problem that the last listing found; empty: none.
        began: start of the listing in progress (seconds of ``clock``); None: none is in progress.
        next_at: when the next listing is due (seconds of ``clock``).
        had_files: whether any listing found files.
    """

    text: str = ""
    began: float | None = None
    next_at: float = 0.0
    had_files: bool = False


@dataclass
class Sources:
    """Lists each source on its own thread, since a lost network share may hang.

    Attributes:
        probe: returns whether a source has files; raises an error that says why it cannot be listed.
        clock: seconds that never go back.
    """

    probe: Callable[..., bool] = probe
    clock: Callable[[], float] = time.monotonic
    _looks: dict[str, _Look] = field(default_factory=dict)
    _kept: KeptFile[list[str]] = field(
        default_factory=lambda: KeptFile("sources.json", list[str], "an empty source is no problem")
    )
    _had_files: frozenset[str] | None = None

    def look(self, sources: Mapping[str, bool]) -> None:
        """Begin to look at the sources that are due, and open or close their problems.

        Args:
            sources: each source -> whether it is an inbox. A run of a schedule tells by itself if it cannot
                list a folder below the source; nothing runs while an inbox cannot be listed.
        """
        now = self.clock()
        if self._had_files is None:
            self._had_files = frozenset(self._kept.read([]))
        self._looks = {
            source: self._looks.get(source) or _Look(had_files=digest_of(source) in self._had_files)
            for source in sources
        }
        for source, look in self._looks.items():
            if look.began is None and now >= look.next_at:
                look.began = now
                work = partial(self._ask, source, look, is_inbox=sources[source])
                threading.Thread(target=work, name=f"look at {source}", daemon=True).start()
        problems = []
        for source, look in self._looks.items():
            text = self._wrong(look, now)
            if text:
                place = public_location(source)
                remedy = "mount or share it again, or renew its credentials; or pause its schedule"
                problems.append(Problem("source", place, f"{place}: {text}", remedy))
        set_problems("source", problems)
        # Those of schedules that are paused now are kept too.
        had_files = self._had_files.union(
            digest_of(source) for source, look in self._looks.items() if look.had_files
        )
        if had_files != self._had_files:
            self._had_files = had_files
            self._kept.write(sorted(had_files))

    def _wrong(self, look: _Look, now: float) -> str:
        if look.began is not None and now - look.began > _HANGS_SECONDS:
            return f"listing it has not ended after {_HANGS_SECONDS:.0f} s"
        return look.text

    def _ask(self, source: str, look: _Look, *, is_inbox: bool) -> None:
        began = self.clock()
        try:
            has_files = self.probe(source, fully=is_inbox)
        except Exception as error:  # noqa: BLE001  becomes a problem that people are told
            why = getattr(error, "message", None) or getattr(error, "strerror", None) or error
            look.text = f"it cannot be listed: {why}"
        else:
            is_lost = look.had_files and not has_files
            look.text = "it is empty, and had files before: is it mounted?" if is_lost else ""
            look.had_files = look.had_files or has_files
        took = self.clock() - began
        pause = _EVERY_SECONDS_OF_INBOX if is_inbox else _EVERY_SECONDS
        look.next_at = self.clock() + min(max(pause, took / _SHARE_OF_TIME), _LONGEST_PAUSE_SECONDS)
        look.began = None
