"""Conditional writes to an object store: create an object if it is absent, replace it if it is unchanged.

``pyarrow.fs`` has neither, so these few requests go through ``obstore`` (``If-None-Match`` and ``If-Match``
on S3 and Azure, generation matches on Google Cloud Storage). So do uploads to Azure: Arrow's writer shows an
empty blob until it is closed. Everything else goes through ``pyarrow.fs``: its clients survive a fork, and a
read through ``obstore`` in a forked process never ends.
"""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
from typing_extensions import override

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.local import TEMPORARY_PREFIX
from shardmill.infra.storage.locations import object_path, public_location
from shardmill.infra.storage.locking import HolderList, ListChanged, Written
from shardmill.infra.storage.objects.retries import is_retryable, retry
from shardmill.infra.storage.objects.stores import (
    ONE_ATTEMPT,
    SEVERAL_ATTEMPTS,
    errors_of_the_store,
    has_own_uploads,
    open_store,
)

if TYPE_CHECKING:  # loaded when the first conditional write is made: readers do without
    from obstore.store import ObjectStore

_REFUSED = re.compile(r"status code: (?:400|501)")  # answers of stores that know no conditions

Tag = dict[str, str]  # the ETag or generation of an object, as obstore takes it


class ObjectChanged(Exception):
    """The object is not the one that was to be replaced."""


class _StoredObject(NamedTuple):
    """An object that was read: its bytes, its tag, and its time of writing by the store's clock (s)."""

    data: bytes
    tag: Tag
    modified_at: float


class Bucket:
    """Conditional writes of one bucket, and whether it is there, shared by all who use it.

    The bucket is opened, and the store checked, when the first conditional write is made.
    """

    def __init__(self, location: str, region: str | None) -> None:
        self._location = location
        self._region = region
        self._objects: ConditionalObjects | None = None
        self._uploads: ObjectStore | None = None
        self._is_there = False
        self._has_credentials = False
        self._lock = threading.Lock()

    def check_is_there(self, filesystem: pafs.FileSystem) -> None:
        """Check that the bucket exists, after an empty listing: a missing bucket gives an empty listing too.

        Raises:
            StorageError: there is no such bucket.
        """
        if self._is_there:
            return
        bucket = object_path(self._location).partition("/")[0]
        try:
            found = retry(lambda: filesystem.get_file_info(bucket))
        except (OSError, pa.ArrowException):
            return  # who may list objects need not be allowed to ask for the bucket
        if found.type == pafs.FileType.NotFound:
            raise StorageError(
                f"there is no bucket {bucket!r} for {public_location(self._location)}",
                "check the name of the bucket and the address of the store, or make the bucket",
            )
        self._is_there = True

    def check_credentials(self, filesystem: pafs.FileSystem, file: str) -> None:
        """Ask for the size of the first file that is read from Azure.

        Arrow's client does not catch what Azure's library throws where credentials are missing: opening a
        file then ends the process. Asking for its size raises an exception.

        Raises:
            ArrowException: there are no credentials.
        """
        if self._has_credentials or not has_own_uploads(self._location):
            return
        with contextlib.suppress(OSError):  # the read itself tells more
            filesystem.get_file_info(file)
        self._has_credentials = True

    def objects(self, folder: str, name: str) -> ConditionalObjects:
        """The objects of the bucket, which can be written under conditions.

        Args:
            folder: folder of the bucket, where the check makes an object.
            name: name of the folder, for people.

        Raises:
            StorageError: the store knows no conditional writes. OSError: it cannot be reached.
        """
        with self._lock:
            if self._objects is None:
                objects = ConditionalObjects(open_store(self._location, self._region, ONE_ATTEMPT))
                if not objects.heeds_conditions(folder):
                    raise StorageError(
                        f"cannot write to {name}: this store does not support conditional writes "
                        "(If-None-Match and If-Match), without which two writers could lose "
                        "each other's version",
                        "use a store that supports them, such as Amazon S3, Google Cloud Storage, Azure or "
                        "MinIO, "
                        "or write to a local folder and copy it to the store",
                    )
                self._objects = objects
            return self._objects

    @property
    def has_own_uploads(self) -> bool:
        """Tell whether objects must be written by ``upload``, not by Arrow's filesystem."""
        return has_own_uploads(self._location)

    def upload(self, key: str, data: BinaryIO) -> None:
        """Write a whole object, in parts if it is large. Readers see the old object until the end."""
        import obstore

        with self._lock:
            if self._uploads is None:
                self._uploads = open_store(self._location, self._region, SEVERAL_ATTEMPTS)
        with errors_of_the_store():
            obstore.put(self._uploads, key, data)


class ConditionalObjects:
    """The objects of one bucket, written under conditions. Safe for many threads.

    A failed request is repeated while it may pass. The answer of a request may be lost after the store has
    done what was asked; then the repeated request fails its condition, and the object's bytes tell who wrote
    it.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def create(self, key: str, data: bytes) -> Tag:
        """Create an object; exactly one of several writers succeeds.

        Raises:
            FileExistsError: the object is there already.
        """
        return self._put(key, data, "create", FileExistsError(f"{key} is there already"))

    def replace(self, key: str, data: bytes, tag: Tag) -> Tag:
        """Replace the object that has this tag.

        Raises:
            ObjectChanged: the object has another tag, or is gone.
        """
        return self._put(key, data, tag, ObjectChanged(f"{key} has changed"))

    def read(self, key: str) -> _StoredObject | None:
        """The object; None if there is no such object."""
        import obstore

        def attempt() -> _StoredObject | None:
            try:
                with errors_of_the_store():
                    found = obstore.get(self._store, key)
                    modified_at = found.meta["last_modified"].timestamp()
                    return _StoredObject(bytes(found.bytes()), _tag(found.meta), modified_at)
            except FileNotFoundError:
                return None

        return retry(attempt)

    def now(self, folder: str) -> float:
        """The store's time (seconds since the epoch), by an object in ``folder`` that is deleted again."""
        with self._deleted_again(folder) as key:
            self.create(key, b"")
            probe = self.read(key)
            return probe.modified_at if probe is not None else 0.0

    def heeds_conditions(self, folder: str) -> bool:
        """Tell whether the store heeds conditions, tried with an object in ``folder`` that is deleted again.

        A store that ignores conditions answers as if they were met.
        """
        with self._deleted_again(folder) as key:
            try:
                return self._heeds_conditions(key)
            except OSError as error:
                if is_retryable(error) or _REFUSED.search(str(error)) is None:
                    raise
                return False

    @contextlib.contextmanager
    def _deleted_again(self, folder: str) -> Iterator[str]:
        """The key of an object that is deleted when the block ends."""
        import obstore

        key = f"{folder}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}".lstrip("/")
        try:
            yield key
        finally:
            with contextlib.suppress(OSError), errors_of_the_store():
                obstore.delete(self._store, key)

    def _heeds_conditions(self, key: str) -> bool:
        tag = self.create(key, b"1")
        try:
            self.create(key, b"2")
        except FileExistsError:
            pass
        else:
            return False
        self.replace(key, b"3", tag)
        try:
            self.replace(key, b"4", tag)
        except ObjectChanged:
            return True
        return False

    def _put(self, key: str, data: bytes, mode: Any, conflict: Exception) -> Tag:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        answer_lost = False

        def attempt() -> Tag:
            nonlocal answer_lost
            try:
                with errors_of_the_store():
                    return _tag(obstore.put(self._store, key, data, mode=mode, use_multipart=False))
            except FileNotFoundError:
                if mode == "create":  # there is no such bucket
                    raise
                raise conflict from None
            except (AlreadyExistsError, PreconditionError):
                found = self.read(key)
                if mode == "create" and found is None:  # S3's 409: another write to this key was under way
                    raise OSError(f"another write to {key} was under way") from None
                if answer_lost and found is not None and found[0] == data:
                    return found[1]
                raise conflict from None
            except OSError:
                answer_lost = True
                raise

        return retry(attempt)


class HolderObject(HolderList):
    """A list of holders in an object."""

    def __init__(self, objects: ConditionalObjects, key: str) -> None:
        self._objects = objects
        self._key = key

    @override
    def read(self) -> Written | None:
        found = self._objects.read(self._key)
        return None if found is None else Written(*found)

    @override
    def write(self, data: bytes, found: Written | None) -> None:
        try:
            if found is None:
                self._objects.create(self._key, data)
            else:
                assert found.tag is not None
                self._objects.replace(self._key, data, found.tag)
        except (FileExistsError, ObjectChanged):
            raise ListChanged from None

    @override
    def now(self) -> float:
        return self._objects.now(self._key.rpartition("/")[0])


def _tag(meta: Any) -> Tag:
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}
