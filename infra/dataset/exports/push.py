"""Push a version to the Hugging Face Hub in one commit: as an export, or as the shards themselves.

The files lie on this machine. They are compared with those of the branch by their digests, uploaded where
they differ (what the Hub has already is not sent again), and committed on top of the commit that they were
compared with. If another commit came between, they are compared again. So readers see all of a push or
nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.exports.formats.huggingface import card_head, card_text
from shardmill.infra.dataset.exports.parts import Plan, class_names, plan_export
from shardmill.infra.dataset.exports.target import CHECKSUMS_FILE, SUMMARY_FILE
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import digest_of, sha256_hex
from shardmill.infra.errors import GO_ON, PublishConflict, StorageError, UsageError
from shardmill.infra.format.layout import croissant_file, manifest_file, signature_file
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.objects.hub import (
    HubPlace,
    commit_of,
    errors_of_the_hub,
    hub_api,
    hub_place,
)
from shardmill.infra.storage.objects.retries import retry
from shardmill.infra.strict_json import dump_json

SHARDS: Final = "shards"

_CARD = "README.md"
PAUSES = (1, 2, 4, 8)  # seconds before a commit is tried again
_MOST_CLASSES = 100  # that a card names
_AT_A_TIME = 8  # files whose upload counts as one step of the progress
_HEAD = re.compile(r"---\r?\n(.*?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_READ_BY_DATASETS = ("huggingface", "parquet", "webdataset")

_Content = Path | bytes
OnProgress = Callable[[int, int], None]  # bytes that are uploaded, bytes in all


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push.

    Attributes:
        place: URI of the repository.
        added: path -> size (bytes) of the files that are new or changed.
        deleted: files of the former push that this one lacks.
        num_unchanged: files that were there already.
        commit: digest of the commit; None for a dry run, or if all was there already.
        is_new: whether the repository was not there before.
    """

    place: str
    added: dict[str, int]
    deleted: list[str]
    num_unchanged: int
    commit: str | None
    is_new: bool


def push(
    version: DatasetVersion,
    destination: str,
    format_name: str = "huggingface",
    *,
    license_id: str | None = None,
    public: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Pushed:
    """Push a version, or a view of it, to a dataset repository, which is made if it is not there.

    Args:
        version: what to push.
        destination: ``hf://datasets/OWNER/NAME``, or that with ``@BRANCH``.
        format_name: a format of ``export``, or ``shards``: the files of the version themselves, which
            ``open_dataset(..., root="hf://datasets/OWNER/NAME")`` reads.
        license_id: licence for the dataset card, as the Hub calls it; None: what the card says already.
        public: make a new repository public.
        dry_run: compare the files, and change nothing on the Hub.
        on_progress: told of the bytes that are uploaded, and of all.

    Raises:
        UsageError: the repository holds other data, or the format cannot hold this version.
        PublishConflict: another push came between, or the repository has another version of this number.
        StorageError: the Hub refuses it, or cannot be reached. CorruptDataError: the version is not whole.
    """
    place = hub_place(destination)
    if place.path:
        raise UsageError(f"{destination} is no repository", "name one: hf://datasets/OWNER/NAME")
    if version.is_joined:
        raise UsageError(f"{version.ref} are several data sets", "push each by itself")
    if not dry_run:
        _check_token(place)
    plan = plan_export(version, format_name, copy=True, plugins={})
    staged = _staging(plan, place)
    files = _shards(version, staged) if format_name == SHARDS else _exported(version, staged, format_name)
    work = _Push(place, plan, files, license_id, public=public, on_progress=on_progress)
    pushed = work.compared() if dry_run else work.done()
    if not dry_run:
        shutil.rmtree(staged, ignore_errors=True)
    return pushed


def _check_token(place: HubPlace) -> None:
    hub_api()
    from huggingface_hub import get_token

    if get_token() is None:
        raise UsageError(
            f"pushing to {place.uri} needs a token",
            f"set HF_TOKEN to one that may write to {place.repo}, or run hf auth login",
        )


def _staging(plan: Plan, place: HubPlace) -> Path:
    """Return the folder of the files that are made for a push; an interrupted one finds them again."""
    folder = os.environ.get("SHARDMILL_PUSH_COPY") or Path("~/.cache/shardmill/push").expanduser()
    return Path(folder).absolute() / digest_of([plan.digest, place.uri], length=16)


def _exported(version: DatasetVersion, staged: Path, format_name: str) -> dict[str, _Content]:
    """Export a version; return path in the repository -> file. The card is made later, for the repository."""
    export(version, staged, format_name, copy=True)
    files: dict[str, _Content] = {
        str(path.relative_to(staged)): path for path in sorted(staged.rglob("*")) if path.is_file()
    }
    files.pop(_CARD, None)
    lines = (staged / CHECKSUMS_FILE).read_text("utf-8").splitlines(keepends=True)
    sums = "".join(line for line in lines if line.rstrip("\n")[66:] != _CARD).encode()
    summary = json.loads((staged / SUMMARY_FILE).read_bytes()) | {"checksums_sha256": sha256_hex(sums)}
    summary["num_files"] -= len(lines) - len(sums.splitlines())
    return files | {CHECKSUMS_FILE: sums, SUMMARY_FILE: (dump_json(summary, indent=1) + "\n").encode("ascii")}


def _shards(version: DatasetVersion, staged: Path) -> dict[str, _Content]:
    """Return path in the repository -> file, of all files of a version; those of a store are copied.

    Raises:
        UsageError: it is a view.
    """
    if version.view is not None:
        raise UsageError(
            f"{version.ref} is no whole version, which the format {SHARDS} needs",
            "push it in the format huggingface",
        )
    version.check_whole()
    number, storage = version.version, version.storage
    optional = [path for path in (signature_file(number), croissant_file(number)) if storage.exists(path)]
    copies = Storage.at(staged)
    files: dict[str, _Content] = {}
    for path in [*version.manifest.files(), *optional, manifest_file(number)]:
        local = storage.local_path(path)
        if local is None:
            if not (staged / path).is_file():
                with copies.atomic_writer(path) as target:
                    storage.copy_to(path, target)
            local = staged / path
        files[f"{version.name}/{path}"] = local
    return files


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest commit of a branch, and its files by path; None: there is no repository."""

    commit: str | None
    files: dict[str, Any]


class _Push:
    """Files of this machine on their way to one branch."""

    def __init__(
        self,
        place: HubPlace,
        plan: Plan,
        files: dict[str, _Content],
        license_id: str | None,
        *,
        public: bool,
        on_progress: OnProgress | None,
    ) -> None:
        from huggingface_hub import utils

        self._place, self._plan, self._files = place, plan, files
        self._license, self._public, self._on_progress = license_id, public, on_progress
        self._api = hub_api()
        utils.disable_progress_bars()  # of single files; ours is of all
        self._additions: dict[str, Any] = {}
        self._first_summary: list[bytes | None] = []

    def done(self) -> Pushed:
        """Commit what differs; try again where another commit came between, or the Hub was busy."""
        is_new = False
        for pause in (*PAUSES, None):
            try:
                is_new = self._create() or is_new
                pushed, head, additions = self._compare()
                if not pushed.added and not pushed.deleted:
                    return pushed
                commit = self._commit(head, additions, pushed.deleted)
                return replace(pushed, commit=commit, is_new=is_new)
            except OSError as error:
                if pause is None:
                    raise StorageError(f"cannot push to {self._place.uri}: {error}", _CONTINUES) from error
                log(f"{self._place.uri}: {error}; trying again", level="warning")
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def compared(self) -> Pushed:
        """Return what ``done`` would commit."""
        try:
            return retry(self._compare)[0]
        except OSError as error:
            raise StorageError(f"cannot read {self._place.uri}: {error}", _CONTINUES) from error

    def _create(self) -> bool:
        """Make the repository where there is none; tell whether it was made."""
        place = self._place
        with errors_of_the_hub(place):
            if self._api.repo_exists(place.repo, repo_type="dataset"):
                return False
            self._api.create_repo(place.repo, repo_type="dataset", private=not self._public, exist_ok=True)
        return True

    def _head(self) -> _Head:
        place = self._place
        with errors_of_the_hub(place):
            if not self._api.repo_exists(place.repo, repo_type="dataset"):
                return _Head(None, {})
        commit = commit_of(place)
        with errors_of_the_hub(place):
            tree = self._api.list_repo_tree(place.repo, recursive=True, revision=commit, repo_type="dataset")
            return _Head(commit, {entry.path: entry for entry in tree if hasattr(entry, "blob_id")})

    def _read(self, head: _Head, path: str) -> bytes | None:
        """Return a file of the newest commit; None: it has none of this name."""
        if path not in head.files:
            return None
        return Storage.at(HubPlace(self._place.repo, head.commit, "").uri).read_bytes(path)

    def _compare(self) -> tuple[Pushed, _Head, list[Any]]:
        """Compare the files with the newest commit.

        Raises:
            UsageError, PublishConflict: see ``push``. OSError: the Hub did not answer.
        """
        head = self._head()
        deleted = self._former(head) if self._plan.format_name != SHARDS else self._checked_manifests(head)
        wanted = self._files | {_CARD: self._card(self._read(head, _CARD))}
        additions = [self._addition(path, content) for path, content in wanted.items()]
        new = [each for each in additions if not _is_same(each, head.files.get(each.path_in_repo))]
        sizes = {each.path_in_repo: each.upload_info.size for each in new}
        unchanged = len(additions) - len(new)
        return Pushed(self._place.uri, sizes, deleted, unchanged, None, head.commit is None), head, new

    def _addition(self, path: str, content: _Content) -> Any:
        """Return the operation that adds a file; one is made once, since it knows that it was uploaded."""
        from huggingface_hub import CommitOperationAdd

        if path not in self._additions or isinstance(content, bytes):
            self._additions[path] = CommitOperationAdd(path, content)
        return self._additions[path]

    def _former(self, head: _Head) -> list[str]:
        """Return the files of the former push that this one lacks.

        Raises:
            UsageError: the repository holds other data. PublishConflict: another push came between.
        """
        found = self._read(head, SUMMARY_FILE)
        self._first_summary.append(found)
        if found not in (self._first_summary[0], self._files[SUMMARY_FILE]):
            raise PublishConflict(
                f"another push to {self._place.uri} came between",
                "look at what it has now; the same command puts this version in its place",
            )
        own, other = (
            self._files.keys() | {_CARD},
            "name another repository, or another branch: hf://...@BRANCH",
        )
        if found is None:
            kinds = {_kind(path) for path in own - {SUMMARY_FILE, CHECKSUMS_FILE, _CARD}}
            if taken := sorted(path for path in head.files if path in self._files or _kind(path) in kinds):
                raise UsageError(f"{self._place.uri} holds other data: {taken[0]}", other)
            return []
        pushed = json.loads(found).get("dataset")
        if pushed != self._plan.version.name:
            raise UsageError(f"{self._place.uri} holds the dataset {pushed}", other)
        lines = (self._read(head, CHECKSUMS_FILE) or b"").decode().splitlines()
        return sorted({line[66:] for line in lines} & head.files.keys() - own)

    def _checked_manifests(self, head: _Head) -> list[str]:
        """Check that the repository has no other version of this number; nothing is deleted.

        Raises:
            PublishConflict: it has.
        """
        version = self._plan.version
        path = f"{version.name}/{manifest_file(version.version)}"
        found, local = self._read(head, path), self._files[path]
        if found is not None and isinstance(local, Path) and found != local.read_bytes():
            raise PublishConflict(
                f"{self._place.uri} has another {version.name}@{version.version}",
                "push it to another repository or branch, or under another name",
            )
        return []

    def _commit(self, head: _Head, additions: list[Any], deleted: list[str]) -> str:
        from huggingface_hub import CommitOperationDelete
        from huggingface_hub.errors import HfHubHTTPError

        place, to = self._place, {"repo_type": "dataset", "revision": self._place.revision}
        total, done = sum(each.upload_info.size for each in additions), 0
        operations = [*additions, *(CommitOperationDelete(path) for path in deleted)]
        message = f"Push {self._plan.version.ref} as {self._plan.format_name}"
        try:
            with errors_of_the_hub(place):
                for some in _in_batches(additions):
                    try:
                        self._api.preupload_lfs_files(place.repo, some, free_memory=False, **to)
                    except RuntimeError as error:  # around what ended one of several uploads
                        raise error.__cause__ or OSError(str(error)) from None
                    done += sum(each.upload_info.size for each in some)
                    if self._on_progress is not None:
                        self._on_progress(done, total)
                try:
                    made = self._api.create_commit(
                        place.repo, operations, commit_message=message, parent_commit=head.commit, **to
                    )
                except HfHubHTTPError as error:
                    if error.response.status_code not in (409, 412):
                        raise
                    raise OSError("another commit came between") from None
        except ValueError as error:  # the answer to the list of large files, or to the card
            raise StorageError(
                f"{place.uri} does not take the files: {' '.join(str(error).split())}",
                "mend what it names: the card in the repository, --license, or the limits of the account",
            ) from error
        return str(made.oid)

    def _card(self, found: bytes | None) -> bytes:
        """Return the dataset card; of one that is there, its own words and keys stay."""
        import yaml

        plan = self._plan
        theirs, text = _parts_of_card(found or b"")
        marks = [
            f"<!-- shardmill {plan.version.name} {plan.format_name}: {end} -->" for end in ("begin", "end")
        ]
        section = f"{marks[0]}\n{_section(plan, self._place)}{marks[1]}"
        before, begun, rest = text.partition(marks[0])
        if begun and marks[1] in rest:
            text = before + section + rest.partition(marks[1])[2]
        else:
            text = f"{text.rstrip()}\n\n{section}\n".lstrip("\n")
        head = _merged_head(plan, theirs)
        if self._license is not None:
            head["license"] = self._license
        lines = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
        return f"---\n{lines}---\n\n{text}".encode()


_CONTINUES = f"check the network and HF_ENDPOINT, then {GO_ON}"


def _in_batches(additions: list[Any]) -> Iterator[list[Any]]:
    yield from (additions[at : at + _AT_A_TIME] for at in range(0, len(additions), _AT_A_TIME))


def _kind(path: str) -> tuple[str, str]:
    """Return the folder and the ending of a file: what is alike would be read with our files."""
    folder, _, name = path.rpartition("/")
    return folder, name.rpartition(".")[2]


def _is_same(addition: Any, entry: Any) -> bool:
    """Tell whether the repository has a file with the same content, by its digest."""
    if entry is None or entry.size != addition.upload_info.size:
        return False
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == addition.upload_info.sha256.hex())
    with addition.as_file() as stream:
        data = stream.read()
    return bool(entry.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())


def _parts_of_card(card: bytes) -> tuple[dict[str, Any], str]:
    """Return the keys in the head of a dataset card, and its text.

    Raises:
        UsageError: it is not UTF-8, or its head is no YAML.
    """
    import yaml

    try:
        text = card.decode()
        found = _HEAD.match(text)
        if found is None:
            return {}, text
        head = yaml.safe_load(found[1])
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{_CARD} of the repository cannot be read: {error}", "mend it there") from error
    return (head if isinstance(head, dict) else {}), text[found.end() :].lstrip("\n")


def _merged_head(plan: Plan, theirs: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a card: those that are there, and what the files of this push make of them."""
    own = card_head(plan)
    if plan.format_name == "huggingface":
        if "configs" not in theirs:
            theirs.pop("viewer", None)
        return {
            **theirs,
            **{key: own[key] for key in own if key in ("configs", "size_categories") or key not in theirs},
        }
    del own["configs"]  # other files are found by their names, or are no table
    is_shown = plan.format_name in _READ_BY_DATASETS or "configs" in theirs
    head = theirs | ({} if is_shown else {"viewer": False})
    return head | {key: value for key, value in own.items() if key not in theirs}


def _section(plan: Plan, place: HubPlace) -> str:
    """Return our part of a card: what the data are, and how to open them."""
    names = class_names(plan)
    classes = ", ".join(names[:_MOST_CLASSES]) + (", ..." if len(names) > _MOST_CLASSES else "")
    if plan.format_name == SHARDS:
        code = (
            f'import shardmill\n\nopened = shardmill.open_dataset("{plan.version.ref}", root="{place.uri}")'
        )
    elif plan.format_name in _READ_BY_DATASETS:
        branch = f', revision="{place.revision}"' if place.revision else ""
        code = f'import datasets\n\nopened = datasets.load_dataset("{place.repo}"{branch})'
    else:
        code = f"# files of: shardmill export --format {plan.format_name}"
    listed = f"\nClasses: {classes}.\n" if names else ""
    return f"{card_text(plan)}{listed}\n```python\n{code}\n```\n"
