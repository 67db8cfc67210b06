"""Datasets of the Hugging Face Hub as folders to read: ``hf://datasets/OWNER/NAME[@REVISION][/PATH]``.

``huggingface_hub`` (the extra ``hub``) speaks to the server at ``HF_ENDPOINT``, with the token of
``HF_TOKEN`` or of ``hf auth login``. A token never stands in a URI. Nothing is written file by file, since
each would be a commit: ``shardmill.infra.dataset.exports.push`` makes one commit of many files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs as pafs
from typing_extensions import override

from shardmill.infra.errors import StorageError
from shardmill.infra.extras import lacking
from shardmill.infra.storage.locations import public_location
from shardmill.infra.storage.objects.retries import RangeReader, retry

if TYPE_CHECKING:
    from huggingface_hub import HfApi, RepoFile, RepoFolder

_SCHEME = "hf://"
_PLACE = re.compile(
    r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/@]+))?(?:/(?P<path>.*))?",
    re.DOTALL,
)
_COMMIT = re.compile("[0-9a-f]{40}")
_FIRST_BYTES = 1 << 20  # of a file, read when it is opened: most images are shorter, and cost one request
_REQUEST_SECONDS, _CONNECT_SECONDS = 60.0, 10.0  # the library itself waits for ever
_RANGE_SECONDS = 20.0
_TOKEN = "set HF_TOKEN to a token of an account that may read it"


@dataclass(frozen=True, slots=True)
class HubPlace:
    """A folder or file of a dataset repository.

    Attributes:
        repo: ``OWNER/NAME``.
        revision: branch, tag or commit; None: the branch ``main``.
        path: in the repository; empty for all of it.
    """

    repo: str
    revision: str | None
    path: str

    @property
    def uri(self) -> str:
        """The location that names this place."""
        at = f"@{quote(self.revision, safe='')}" if self.revision else ""
        return f"{_SCHEME}datasets/{self.repo}{at}" + (f"/{self.path}" if self.path else "")


def is_on_hub(location: str) -> bool:
    """Tell whether a location is one of the Hub."""
    return location.startswith(_SCHEME)


def hub_place(location: str) -> HubPlace:
    """Return the place on the Hub that a location names.

    Raises:
        StorageError: it names no dataset repository.
    """
    found = _PLACE.fullmatch(location)
    if found is None or "?" in location or "#" in location:
        raise StorageError(
            f"{public_location(location)} does not name a dataset of the Hub",
            "write hf://datasets/OWNER/NAME, hf://datasets/OWNER/NAME@REVISION or either with /PATH; the "
            "token is read from HF_TOKEN, the server from HF_ENDPOINT",
        )
    revision = unquote(found["revision"]) if found["revision"] else None
    return HubPlace(found["repo"], revision, (found["path"] or "").strip("/"))


def without_revision(uri: str) -> str:
    """Return a location of the Hub without its revision, any other unchanged.

    Files are told apart by the digests of their content, so one repository is one source at all revisions.
    """
    found = _PLACE.fullmatch(uri)
    if found is None:
        return uri
    return HubPlace(found["repo"], None, (found["path"] or "").strip("/")).uri  # with rows: #row=12


def is_repository(location: str) -> bool:
    """Tell whether a location is a whole repository of the Hub, which lies in no folder."""
    return is_on_hub(location) and not hub_place(location).path


def at_commit(location: str) -> str:
    """Return a location of the Hub with the commit that its revision is now, any other unchanged.

    Raises:
        StorageError: there is no such repository or revision, or the Hub does not give it.
    """
    if not is_on_hub(location):
        return location
    place = hub_place(location)
    is_commit = _COMMIT.fullmatch(place.revision or "") is not None
    return location if is_commit else replace(place, revision=commit_of(place)).uri


def commit_of(place: HubPlace) -> str:
    """Return the commit that the revision of a place is now.

    Raises:
        StorageError: as of ``at_commit``.
    """

    def attempt() -> str:
        with errors_of_the_hub(place):
            return str(hub_api().dataset_info(place.repo, revision=place.revision, expand=["sha"]).sha)

    try:
        return retry(attempt)
    except OSError as error:
        raise StorageError(f"cannot read {place.uri}: {error}", _NETWORK) from error


def hub_api() -> HfApi:
    """Return the client of the Hub.

    Raises:
        EnvironmentFault: its library is not installed.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise lacking("hf://", "huggingface_hub", "hub")
    from huggingface_hub import HfApi

    _limit_waiting()
    return HfApi(endpoint=_server(), library_name="shardmill")


def _server() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


@cache
def _limit_waiting() -> None:
    """Let no request wait for ever, unless the program chose a client of its own."""
    import httpx2
    from huggingface_hub import get_session, set_client_factory

    usual = get_session()
    if usual.timeout != httpx2.Timeout(None):
        return
    hooks, limit = usual.event_hooks, httpx2.Timeout(_REQUEST_SECONDS, connect=_CONNECT_SECONDS)
    set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=limit))


_NETWORK = "check the network and HF_ENDPOINT, then run the same command again: it continues"


@contextlib.contextmanager
def errors_of_the_hub(place: HubPlace) -> Iterator[None]:
    """Raise errors of ``huggingface_hub`` as ours, or as an ``OSError`` where the same request may succeed.

    Raises:
        StorageError: the Hub refuses the repository. FileNotFoundError: there is no such file in it.
        OSError: the request failed.
    """
    import httpx2
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled

    try:
        yield
    except EntryNotFoundError:
        raise FileNotFoundError(place.uri) from None
    except OfflineModeIsEnabled:
        raise StorageError(
            f"cannot read {place.uri}: HF_HUB_OFFLINE is set", "unset it, or give a local folder"
        ) from None
    except HfHubHTTPError as error:
        _raise_refusal(place, error)
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise OSError(f"{type(error).__name__}: {error or 'no answer'}") from None


def _raise_refusal(place: HubPlace, error: Any) -> NoReturn:
    """Raise an answer of the Hub that is an error; see ``errors_of_the_hub``."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    repo, server = f"{_SCHEME}datasets/{place.repo}", _server()
    status, url = error.response.status_code, str(error.response.url)
    said = error.server_message or error.response.reason_phrase
    if not url.startswith(f"{server}/"):  # the store of large files, which does not give this one
        raise OSError(f"HTTP status {status}: {said}") from None
    if isinstance(error, GatedRepoError):
        terms = f"accept its terms at {server}/datasets/{place.repo}, then {_TOKEN}"
        raise StorageError(f"{repo} is gated: its owners decide who reads it", terms) from None
    if isinstance(error, RevisionNotFoundError):
        raise StorageError(
            f"{repo} has no revision {place.revision or 'main'}", "name a branch, a tag or a commit it has"
        ) from None
    if "Invalid credentials" in f"{error.server_message} {error.response.headers.get('X-Error-Message')}":
        raise StorageError(
            f"the Hub refuses the token for {repo}", "set HF_TOKEN to a valid token, or unset it"
        ) from None
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        raise StorageError(
            f"there is no {repo} at {server}, or it is private",
            f"check its name; if it is private, {_TOKEN}",
        ) from None
    if status == 400:
        raise StorageError(f"the Hub refuses the request for {repo}: {said}", None) from None
    if status == 403:
        raise StorageError(
            f"the Hub refuses {repo}: {said}", "use a token that has this permission, as HF_TOKEN"
        ) from None
    raise OSError(f"HTTP status {status}: {said}") from None


class HubFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """The files of one repository at one revision, for Arrow. Paths begin with ``OWNER/NAME``.

    Git keeps no times of files. The time of change is a number made from the digest of the content, which
    changes with the file.
    """

    def __init__(self, place: HubPlace) -> None:
        self._place = place
        self._api = hub_api()

    @staticmethod
    def opened(location: str) -> tuple[pafs.FileSystem, str]:
        """Return the filesystem of a location, and the path in it."""
        place = hub_place(location)
        files = HubFiles(replace(place, path=""))
        return pafs.PyFileSystem(files), f"{place.repo}/{place.path}".rstrip("/")

    @override
    def get_type_name(self) -> str:
        return "hf"

    @override
    def normalize_path(self, path: str) -> str:
        return path

    def _within(self, path: str) -> HubPlace:
        return replace(self._place, path=path.removeprefix(self._place.repo).strip("/"))

    @override
    def get_file_info(self, paths: Iterable[str]) -> list[pafs.FileInfo]:
        return [self._described(path) for path in paths]

    def _described(self, path: str) -> pafs.FileInfo:
        place = self._within(path)
        with errors_of_the_hub(place):
            if not place.path:
                self._api.dataset_info(place.repo, revision=place.revision, expand=["sha"])
                return pafs.FileInfo(path, pafs.FileType.Directory)
            found = self._api.get_paths_info(
                place.repo, [place.path], revision=place.revision, repo_type="dataset"
            )
        if not found:
            return pafs.FileInfo(path, pafs.FileType.NotFound)
        return _info(path, found[0])

    @override
    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        place = self._within(selector.base_dir)
        try:
            with errors_of_the_hub(place):
                entries = list(
                    self._api.list_repo_tree(
                        place.repo,
                        place.path or None,
                        recursive=selector.recursive,
                        revision=place.revision,
                        repo_type="dataset",
                    )
                )
        except FileNotFoundError:
            if not selector.allow_not_found:
                raise
            return []
        return [_info(f"{place.repo}/{entry.path}", entry) for entry in entries if entry.path != place.path]

    @override
    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_HubFile(self._within(path)), mode="r")

    @override
    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise not_writable(self._place.uri)

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


def not_writable(uri: str) -> StorageError:
    """Return the error of a write to a single file of the Hub."""
    return StorageError(
        f"{uri} is read only: on the Hub each file that is written would be a commit",
        "write to a local folder or another store, then shardmill push NAME hf://datasets/OWNER/NAME",
    )


def _info(path: str, entry: RepoFile | RepoFolder) -> pafs.FileInfo:
    from huggingface_hub import RepoFolder

    if isinstance(entry, RepoFolder):
        return pafs.FileInfo(path, pafs.FileType.Directory)
    digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
    tag = int.from_bytes(bytes.fromhex(digest)[:8], "big") >> 1
    return pafs.FileInfo(path, pafs.FileType.File, size=entry.size, mtime_ns=tag)


class _HubFile(RangeReader):
    """A file of the Hub, read by ranges. What is read when it is opened is kept, and tells its size."""

    def __init__(self, place: HubPlace) -> None:
        super().__init__()
        self._place = place
        self._first = self._fetched(0, _FIRST_BYTES)

    def _fetched(self, start: int, length: int) -> bytes:
        """Return bytes from ``start``; fewer than ``length`` only where the file ends.

        Raises:
            OSError: the request failed, or was answered with fewer bytes.
        """
        from huggingface_hub import hf_hub_url, utils

        place = self._place
        url = hf_hub_url(
            place.repo, place.path, repo_type="dataset", revision=place.revision, endpoint=_server()
        )
        headers = {**utils.build_hf_headers(library_name="shardmill"), "Accept-Encoding": "identity"}
        headers["Range"] = f"bytes={start}-{start + length - 1}"
        with errors_of_the_hub(place):
            answer = utils.http_backoff("GET", url, headers=headers, timeout=_RANGE_SECONDS, max_retries=2)
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status_code == 416 and total == "0":
                return b""
            utils.hf_raise_for_status(answer)
        data = bytes(answer.content)
        if answer.status_code != 206:  # the server sends the whole file
            self._size = len(data)
            return data[start : start + length]
        self._size = int(total)
        if len(data) != min(length, self._size - start):
            raise OSError(f"{place.uri}: {len(data)} bytes came of a range of {length}")
        return data

    def read_at(self, length: int, offset: int) -> bytes:
        data = self._first[offset : offset + length]
        if len(data) < length:
            data += self._fetched(offset + len(data), length - len(data))
        return data
