"""Conditional writes to an object store: create an object if it is absent, replace it if it is unchanged.

``pyarrow.fs`` has neither, so these few requests go through ``obstore`` (``If-None-Match`` and ``If-Match``
on S3, generation matches on Google Cloud Storage). Everything else goes through ``pyarrow.fs``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from infra.errors import StorageError
from infra.storage.local import TEMPORARY_PREFIX
from infra.storage.locations import ObjectLocation, object_location, public_location, without_secrets
from infra.storage.locks.locking import Lock
from infra.storage.objects.retries import retry

if TYPE_CHECKING:  # loaded when the first conditional write is made: readers do without
    from obstore.store import ObjectStore

_REQUEST_SECONDS = 20  # the longest that one attempt may take
_REFUSED = re.compile(r"status code: (?:400|501)")  # of stores that know no conditions

Tag = dict[str, str]  # the ETag or generation of an object, as obstore takes it


class ObjectChanged(Exception):
    """The object is not the one that was to be replaced."""


class BucketWrites:
    """Conditional writes of one bucket, and the locks that are held in it; shared by its writers.

    The bucket is opened, and the store checked, when the first conditional write is made.
    """

    def __init__(self, location: str, region: str | None) -> None:
        self._location = location
        self._region = region
        self._objects: ConditionalObjects | None = None
        self._lock = threading.Lock()
        self._held: list[Lock] = []

    @contextlib.contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """Let nothing be written in the block once ``lock`` is lost."""
        self._held.append(lock)
        try:
            yield
        finally:
            self._held.remove(lock)

    def ensure_locks_held(self) -> None:
        """Check every lock of the blocks that are running.

        Raises:
            LockedError: one of them was lost.
        """
        for lock in list(self._held):
            lock.ensure_held()

    def objects(self, folder: str, name: str) -> ConditionalObjects:
        """The objects of the bucket, which can be written under conditions.

        Args:
            folder: of the bucket, where the check makes an object.
            name: of the folder, for people.

        Raises:
            StorageError: the store knows no conditional writes. OSError: it cannot be reached.
        """
        with self._lock:
            if self._objects is None:
                objects = ConditionalObjects(_open_store(self._location, self._region))
                if not objects.heeds_conditions(folder):
                    raise StorageError(
                        f"cannot write to {name}: this store does not support conditional writes "
                        "(If-None-Match and If-Match), without which two writers could lose "
                        "each other's version",
                        "use a store that supports them, such as Amazon S3, Google Cloud Storage or MinIO, "
                        "or write to a local folder and copy it to the store",
                    )
                self._objects = objects
            return self._objects


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

    def read(self, key: str) -> tuple[bytes, Tag] | None:
        """The object's bytes and tag; None if there is no such object."""
        import obstore

        def attempt() -> tuple[bytes, Tag] | None:
            try:
                with _errors_of_the_store():
                    found = obstore.get(self._store, key)
                    return bytes(found.bytes()), _tag(found.meta)
            except FileNotFoundError:
                return None

        return retry(attempt)

    def heeds_conditions(self, folder: str) -> bool:
        """Tell whether the store heeds conditions, tried with an object in ``folder`` that is deleted again.

        A store that ignores conditions answers as if they were met.
        """
        import obstore

        key = f"{folder}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}".lstrip("/")
        try:
            return self._heeds_conditions(key)
        except OSError as error:
            if _REFUSED.search(str(error)) is None:
                raise
            return False
        finally:
            with contextlib.suppress(OSError), _errors_of_the_store():
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
                with _errors_of_the_store():
                    return _tag(obstore.put(self._store, key, data, mode=mode, use_multipart=False))
            except FileNotFoundError as error:
                if mode == "create":  # there is no such bucket
                    raise FileNotFoundError(_first_line(error)) from None
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


def _tag(meta: Any) -> Tag:
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}


@contextlib.contextmanager
def _errors_of_the_store() -> Iterator[None]:
    """Raise errors of obstore as ``OSError``, without their page of details; failed conditions stay."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(_first_line(error)) from None
    except exceptions.BaseError as error:
        raise OSError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition("<?xml")[0].strip()


_CLIENT: Any = {"timeout": f"{_REQUEST_SECONDS}s", "connect_timeout": "5s", "allow_http": True}
_ONE_ATTEMPT: Any = {"max_retries": 0}  # a condition that failed after a lost answer must be seen here


def _open_store(location: str, region: str | None) -> ObjectStore:
    found = object_location(location)
    assert found is not None, "for object stores"
    try:
        if found.scheme == "s3":
            return _s3_store(found, region)
        if found.scheme in ("gs", "gcs"):
            return _google_store(found)
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"cannot open storage {public_location(location)}: "
            + without_secrets(_first_line(error), location),
            f"check the URI and the credentials of {found.scheme}://",
        ) from None
    raise StorageError(
        f"cannot write to {public_location(location)}: writing to {found.scheme}:// is not supported",
        "write to a local folder, s3:// or gs://",
    )


def _s3_store(location: ObjectLocation, region: str | None) -> ObjectStore:
    from obstore.store import S3Store

    config: dict[str, Any] = {"region": location.region or region or "us-east-1"}
    endpoint = (
        location.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    )
    if endpoint is not None:
        config["endpoint"] = endpoint
    if location.user:
        config |= {"access_key_id": location.user, "secret_access_key": location.password}
    has_keys = location.user or "AWS_ACCESS_KEY_ID" in os.environ
    return S3Store(
        location.bucket,
        config=config,  # type: ignore[arg-type]
        client_options=_CLIENT,
        retry_config=_ONE_ATTEMPT,
        credential_provider=None if has_keys else _profile_credentials(),
    )


def _profile_credentials() -> Any:
    """The credentials of ``~/.aws`` or of the machine's role, as AWS's own tools find them; or None."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    return Boto3CredentialProvider(session) if session.get_credentials() is not None else None


def _google_store(location: ObjectLocation) -> ObjectStore:
    from obstore.store import GCSStore

    config: dict[str, Any] = {} if location.endpoint is None else {"base_url": location.endpoint}
    if location.user == "anonymous":
        # With skip_signature alone, writing asks for a token all the same.
        account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        if location.endpoint is not None:
            account["gcs_base_url"] = location.endpoint
        config = {"service_account_key": json.dumps(account)}
    return GCSStore(
        location.bucket,
        config=config,  # type: ignore[arg-type]
        client_options=_CLIENT,
        retry_config=_ONE_ATTEMPT,
    )
