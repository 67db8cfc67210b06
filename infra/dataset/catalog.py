"""The datasets under one root: opens their published versions, and publishes new ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from shardmill.infra.arguments import checked
from shardmill.infra.dataset.croissant import write_croissant
from shardmill.infra.dataset.lock import lock_for_adding
from shardmill.infra.dataset.signatures import is_signed, sign_version
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import Reference, parse_joined, parse_reference
from shardmill.infra.errors import (
    CorruptDataError,
    DataError,
    EnvironmentFault,
    NotFoundError,
    UsageError,
)
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.layout import (
    REMOVED,
    croissant_file,
    decode_manifest,
    encode_manifest,
    manifest_file,
    signature_file,
    version_of_manifest,
)
from shardmill.infra.near_names import near_miss
from shardmill.infra.progress import log
from shardmill.infra.signing import SigningKey
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import check_dataset_name


def load_version(storage: Storage, name: str, version: int) -> DatasetVersion:
    """Read the manifest of a version, and check that it is the manifest of this version.

    Args:
        storage: the dataset's folder.
        name: name of the dataset.
        version: its number.

    Raises:
        NotFoundError: there is no such manifest. FormatVersionError: it was written under another format.
        CorruptDataError: it was altered, or belongs to another dataset or version.
    """
    path = manifest_file(version)
    place = f"{storage.uri}/{path}"
    manifest = decode_manifest(storage.read_bytes(path), path=place)
    if (manifest.dataset, manifest.version) != (name, version):
        raise CorruptDataError(
            f"{place} is the manifest of {manifest.dataset}@{manifest.version}, not of {name}@{version}",
            "a manifest keeps its file name and a dataset its folder's name: undo the copy or renaming",
        )
    return DatasetVersion(storage, manifest)


def removed_numbers(storage: Storage) -> list[int]:
    """Return the numbers of the removed versions in a dataset's folder, in ascending order."""
    names = (entry.path.rpartition("/")[2] for entry in storage.list_files(REMOVED, recursive=False))
    return sorted(number for name in names if (number := version_of_manifest(name)) is not None)


# As training names its runs (shardmill.training.run.files.identity).
_RUN_NAME = re.compile(r"(?P<dataset>.+)-v(?P<version>[0-9]+)-[0-9a-f]{4,}")


@checked
class Catalog:
    """The datasets under one root.

    Args:
        root: a local folder or the URI of an object store.
        signing_key: a file with the private key that signs each published version; None: none is signed.

    Raises:
        ConfigError: the file has no private key that can sign.
    """

    def __init__(self, root: str | Path, signing_key: str | Path | None = None) -> None:
        if not str(root):
            raise UsageError("the root of the datasets is empty", "give a folder, or . for this one")
        self.storage = Storage.at(root)
        self._key = None if signing_key is None else SigningKey(signing_key)

    def dataset_storage(self, name: str) -> Storage:
        """The folder of a dataset, which need not exist yet."""
        return self.storage.child(check_dataset_name(name))

    def datasets(self) -> list[str]:
        """Sorted names of the datasets that have a published version."""
        return [name for name in self.storage.list_folders() if self.versions(name)]

    def versions(self, name: str) -> list[int]:
        """Numbers of the published versions, in ascending order."""
        folder = f"{name}/manifests"
        names = [entry.path.rsplit("/", 1)[-1] for entry in self.storage.list_files(folder, recursive=False)]
        if self.storage.is_local:
            names += self.storage.list_folders(folder)  # in the place of a manifest: opening it says so
        found = map(version_of_manifest, names)
        versions = sorted(version for version in found if version is not None)
        if not self.storage.is_local:
            # A listing of an object store may be a few seconds old; a look at one name never is.
            while self.storage.exists(f"{name}/{manifest_file(max(versions, default=0) + 1)}"):
                versions.append(max(versions, default=0) + 1)
        return versions

    def next_version(self, name: str) -> int:
        """The number of the next version to publish; that of a removed version is not given again."""
        return max([*self.versions(name), self.last_removed(name)]) + 1

    def last_removed(self, name: str) -> int:
        """The highest number of a version that was removed; 0: none was."""
        return max(removed_numbers(self.dataset_storage(name)), default=0)

    def open_view(self, ref: str) -> DatasetVersion:
        """Open a version as ``open`` does, a view of it: ``name@3?width > 800``, or several, joined by ``;``.

        Raises:
            UsageError: the query is wrong.
            DataError: data sets cannot be read as one.
            NotFoundError, FormatVersionError, CorruptDataError: as ``open``.
        """
        wanted = parse_joined(ref)
        opened = [self._open_one(part.reference) for part in wanted.parts]
        if wanted.is_one:
            return opened[0]
        from shardmill.infra.dataset.joined import JoinedVersion  # most read one data set

        parts = zip(wanted.parts, opened, strict=True)
        numbered = [replace(part, reference=parse_reference(one.ref)) for part, one in parts]
        return JoinedVersion(self.storage, replace(wanted, parts=tuple(numbered)), opened)

    def _open_one(self, wanted: Reference) -> DatasetVersion:
        whole = self.open(str(Reference(wanted.name, wanted.version)))
        return whole if wanted.query is None else whole.query(wanted.query)

    def open(self, ref: str) -> DatasetVersion:
        """Open the version ``name@3``, or with ``name`` or ``name@latest`` the newest.

        Raises:
            NotFoundError: there is no such dataset or version; says which there are.
            UsageError: it names a view or several data sets.
            FormatVersionError: it was written under another format.
            CorruptDataError: its manifest was altered, or belongs to another version.
        """
        if len(parts := parse_joined(ref).parts) > 1:
            one = str(parts[0].reference)
            raise UsageError(f"{ref!r} are several data sets", f"this needs one: {one}")
        asked = parse_reference(ref)
        name, wanted = asked.name, asked.version
        if asked.query is not None:
            raise UsageError(f"{ref!r} is a view", f"this needs a whole version: {Reference(name, wanted)}")
        check_dataset_name(name)
        versions = self.versions(name)
        if not versions:
            raise self._no_such_dataset(name)
        if wanted in ("", "latest"):
            version = versions[-1]
        elif wanted.isascii() and wanted.isdecimal() and int(wanted) in versions:
            version = int(wanted)
        else:
            known = ", ".join(str(number) for number in versions)
            raise NotFoundError(f"dataset {name} has no version {wanted!r}", f"it has: {known}")
        return self._load(name, version)

    def latest(self, name: str) -> DatasetVersion | None:
        """The newest version, or None if nothing is published."""
        versions = self.versions(check_dataset_name(name))
        return self._load(name, versions[-1]) if versions else None

    def _load(self, name: str, version: int) -> DatasetVersion:
        return load_version(self.dataset_storage(name), name, version)

    def publish(self, manifest: Manifest) -> DatasetVersion:
        """Publish a version by creating its manifest; then describe it, and sign it with the key.

        Raises:
            PublishConflict: another writer published this number first.
        """
        storage = self.dataset_storage(manifest.dataset)
        storage.create_if_absent(manifest_file(manifest.version), encode_manifest(manifest))
        write_croissant(storage, manifest)
        self._describe_parent(storage, manifest)
        version = DatasetVersion(storage, manifest)
        self.sign_if_unsigned(version)
        return version

    def sign_if_unsigned(self, version: DatasetVersion) -> None:
        """Sign a published version that has no signature, if there is a key.

        Raises:
            LockedError: parts of the dataset are being removed.
        """
        if self._key is not None and not is_signed(version):
            # A purge that rewrites the manifest meanwhile would leave a signature that does not hold.
            with lock_for_adding(version.storage, version.name):
                sign_version(version, self._key)

    def replace(self, manifest: Manifest) -> None:
        """Write the manifest of a published version again. Its signature no longer holds and is removed.

        The lock of the dataset must be held.
        """
        storage = self.dataset_storage(manifest.dataset)
        storage.delete(signature_file(manifest.version))
        storage.write_atomic(manifest_file(manifest.version), encode_manifest(manifest))

    def _describe_parent(self, storage: Storage, manifest: Manifest) -> None:
        """Write the description of the version before, if its writer left none."""
        number = manifest.parent
        try:
            if number is not None and not storage.exists(croissant_file(number)):
                write_croissant(storage, self._load(manifest.dataset, number).manifest)
        except (EnvironmentFault, NotFoundError, DataError) as error:
            log(f"{manifest.dataset}@{number} has no description: {error}", level="warning")

    def _no_such_dataset(self, name: str) -> NotFoundError:
        known = self.datasets()
        near = near_miss(name, known)
        remedy = near or "there are none yet: `shardmill prepare SOURCE --dataset NAME` makes one"
        run = _RUN_NAME.fullmatch(name)
        if run is not None and run["dataset"] in known:
            remedy = f"it is named like a training run on the dataset {run['dataset']}@{run['version']}"
        elif self.storage.is_local and not self.storage.exists(""):
            remedy = f"there is no such folder: give that of the datasets with --root, or {remedy}"
        if Path(name).is_dir():
            made = f"of the folder {name}, shardmill prepare {name} --dataset NAME makes one"
            remedy = f"{made}; {remedy}" if near or not self.storage.exists("") else made
        if self.last_removed(name):
            remedy = f"it was removed: shardmill versions {name} tells for how long it can be brought back"
        return NotFoundError(f"no dataset {name!r} under {self.storage.uri}", remedy)
