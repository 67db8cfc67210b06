"""A copy of an object store's folder in a folder of this machine, for programs that write and read files.

``pull`` makes the copy equal to the store; ``push`` makes the store equal to the copy. What was copied is
noted in a file beside the copy, so each moves only the files that changed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.filesystem import FileEntry, Storage
from shardmill.infra.strict_json import dump_json


def _every(path: str) -> bool:
    return True


State = list[int]  # size (bytes) and time of change (ns)


class Mirror:
    """A folder of an object store and its copy. One process at a time may use a copy."""

    def __init__(self, store: Storage, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._copy = Storage.at(folder)
        self._notes = Storage.at(folder.parent)
        self._note = f".{folder.name}.mirror.json"
        self._known = self._read_note()

    def pull(self, wanted: Callable[[str], bool] = _every) -> None:
        """Make the wanted files of the copy those of the store, and remove files that the store lacks.

        Raises:
            StorageError: a file cannot be read or written.
        """
        stored = {entry.path: entry for entry in self._store.list_files() if wanted(entry.path)}
        copied = {entry.path: entry for entry in self._copy.list_files()}
        before = dict(self._known)
        for path in copied.keys() - stored.keys():
            if wanted(path):
                self._copy.delete(path)
                self._known.pop(path, None)
        for path, entry in sorted(stored.items()):
            known, here = self._known.get(path), copied.get(path)
            is_same = known is not None and here is not None
            if not (is_same and known == {"copy": _state(here), "store": _state(entry)}):
                with self._copy.atomic_writer(path) as target:
                    self._store.copy_to(path, target)
                # The time tells when a run has ended.
                os.utime(self._folder / path, ns=(entry.mtime_ns, entry.mtime_ns))
                self._known[path] = {"copy": _state(self._copy.entry(path)), "store": _state(entry)}
        if self._known != before:
            self._write_note()

    def push(
        self,
        order: Callable[[str], Any] = lambda path: path,
        mark: str | None = None,
        wanted: Callable[[str], bool] = _every,
    ) -> None:
        """Upload the files that changed, in this order, then remove the files that the copy no longer has.

        Files that are written meanwhile are uploaded by the next push. Each file of the store is whole.

        Args:
            order: the key by which the changed files are sorted.
            mark: a file that says that all others are complete: it is removed first.
            wanted: tells the files that are uploaded and removed; the store keeps the others as they are.

        Raises:
            StorageError: a file cannot be read or written. LockedError: a lock on the store was lost.
        """
        copied = {entry.path: entry for entry in self._copy.list_files() if wanted(entry.path)}
        changed = [
            path for path, entry in copied.items() if self._known.get(path, {}).get("copy") != _state(entry)
        ]
        if mark in self._known and mark not in copied:
            self._store.delete(mark)
            del self._known[mark]
        for path in sorted(changed, key=order):
            with contextlib.suppress(NotFoundError, FileNotFoundError):  # it was removed meanwhile
                with self._store.atomic_writer(path) as target:
                    self._copy.copy_to(path, target)
                self._known[path] = {
                    "copy": _state(copied[path]),
                    "store": _state(self._store.entry(path)),
                }
        for path in sorted(filter(wanted, self._known.keys() - copied.keys())):
            self._store.delete(path)
            del self._known[path]
        if self._folder.parent.is_dir():
            self._write_note()

    def _read_note(self) -> dict[str, dict[str, State]]:
        try:
            found: dict[str, dict[str, State]] = json.loads(self._notes.read_bytes(self._note))
        except (NotFoundError, ValueError):
            return {}  # all is copied anew
        return found

    def _write_note(self) -> None:
        self._notes.write_atomic(self._note, dump_json(self._known).encode())


def _state(entry: FileEntry | None) -> State:
    return [] if entry is None else [entry.size_bytes, entry.mtime_ns]
