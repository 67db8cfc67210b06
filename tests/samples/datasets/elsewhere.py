"""A version whose files are not of this machine's own filesystem, as far as Shardmill can see."""

from __future__ import annotations

import pyarrow.fs as pafs

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.storage.filesystem import Storage


def elsewhere(version: DatasetVersion) -> DatasetVersion:
    """The same version, to be reached through a filesystem that gives no paths."""
    path = version.storage.local_path()
    assert path is not None
    there = pafs.SubTreeFileSystem(str(path), pafs.LocalFileSystem())
    return DatasetVersion(Storage(there, "", "s3://bucket/sample"), version.manifest)
