"""Record the path and SHA-256 of a report in the manifests of its versions."""

from __future__ import annotations

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.digests import stream_sha256
from shardmill.infra.format.contract import Manifest
from shardmill.infra.storage.filesystem import Storage


def with_report(storage: Storage, manifest: Manifest, path: str) -> Manifest:
    """Return the manifest with the report at ``path`` in the dataset's folder."""
    return manifest.model_copy(update={"report": path, "report_sha256": report_sha256(storage, path)})


def record_report(catalog: Catalog, name: str, path: str) -> None:
    """Write the SHA-256 of a report that was made again into every manifest of the dataset that names it.

    Signatures of these manifests are removed. The lock of the dataset must be held: a purge rewrites
    manifests too.
    """
    storage = catalog.dataset_storage(name)
    for version in catalog.versions(name):
        manifest = catalog.open(f"{name}@{version}").manifest
        if manifest.report != path:
            continue
        changed = with_report(storage, manifest, path)
        if changed != manifest:
            catalog.replace(changed)


def report_sha256(storage: Storage, path: str) -> str:
    """SHA-256 of the page at ``path``, as 64 hexadecimal digits.

    Raises:
        NotFoundError: there is no such page.
    """
    with storage.open_input(path) as stream:
        return stream_sha256(stream)
