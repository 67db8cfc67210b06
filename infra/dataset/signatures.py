"""The signature of a version: a file beside its manifest, which holds the checksums of all other files.

It is no part of the version. Signing changes no digest, and a reader that does not ask for it never opens it.
"""

from __future__ import annotations

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import NotFoundError, SignatureError
from shardmill.infra.format.layout import decode_manifest, manifest_file, signature_file, version_of_manifest
from shardmill.infra.signing import SUFFIX, PublicKey, SigningKey, unsigned
from shardmill.infra.storage.filesystem import Storage


def sign_version(version: DatasetVersion, key: SigningKey) -> str:
    """Sign the stored manifest of a version; an earlier signature is replaced.

    Returns:
        The path of the signature in the dataset's folder.
    """
    name, stored = _stored_manifest(version)
    path = signature_file(version.version)
    version.storage.write_atomic(path, key.sign_bytes(name, stored))
    return path


def is_signed(version: DatasetVersion) -> bool:
    """Tell whether a version has a signature; whether it holds is another question."""
    return version.storage.exists(signature_file(version.version))


def signed_versions(dataset: Storage) -> set[int]:
    """Numbers of the versions in a dataset's folder that have a signature."""
    entries = dataset.list_files("manifests", recursive=False)
    names = (entry.path.rpartition("/")[2] for entry in entries if entry.path.endswith(SUFFIX))
    found = (version_of_manifest(name.removesuffix(SUFFIX)) for name in names)
    return {number for number in found if number is not None}


def check_signature(version: DatasetVersion, key: PublicKey) -> None:
    """Check that the stored manifest is the one that was signed, and the one that was opened.

    The files that it names are ``shardmill.infra.dataset.verify``'s to check.

    Raises:
        SignatureError: the version is not signed, was signed with another key, or its manifest changed.
    """
    try:
        signature = version.storage.read_bytes(signature_file(version.version))
    except NotFoundError as error:
        raise unsigned(version.ref) from error
    name, stored = _stored_manifest(version)
    key.check_bytes(name, stored, signature, f"the manifest of {version.ref}")
    if decode_manifest(stored, name) != version.manifest:
        raise SignatureError(f"the manifest of {version.ref} was replaced meanwhile", "run the command again")


def _stored_manifest(version: DatasetVersion) -> tuple[str, bytes]:
    path = manifest_file(version.version)
    return path.rpartition("/")[2], version.storage.read_bytes(path)
