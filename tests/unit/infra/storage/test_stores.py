"""The filesystem of a location, with the options that it is opened with."""

from __future__ import annotations

import pyarrow.fs as pafs
import pytest

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.objects.stores import open_filesystem


@pytest.mark.parametrize(
    ("location", "same_as"),
    [
        ("gs://anonymous@bucket/a", "gs://anonymous@bucket/a?retry_limit_seconds=20"),
        ("gs://anonymous@bucket/a?scheme=http", "gs://anonymous@bucket/a?scheme=http&retry_limit_seconds=20"),
        ("gs://anonymous@bucket/a?retry_limit_seconds=5", "gs://anonymous@bucket/a?retry_limit_seconds=5"),
    ],
)
def test_repetitions_of_requests_to_googles_store_are_bounded(location: str, same_as: str) -> None:
    """Arrow's client would repeat them for 15 minutes."""
    opened, path = open_filesystem(location)
    assert path == "bucket/a"
    assert opened.equals(pafs.FileSystem.from_uri(same_as)[0])
    assert not opened.equals(pafs.FileSystem.from_uri("gs://anonymous@bucket/a")[0])


def test_missing_credentials_of_azure_are_an_error_of_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's client raises no OSError then."""
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    storage = Storage.at("az://account@container/data?endpoint_override=127.0.0.1:9&scheme=http")
    for read in (storage.list_files, lambda: storage.exists("a"), lambda: storage.read_bytes("a")):
        with pytest.raises(StorageError, match="cannot read az://container/data") as caught:
            read()
        assert "credentials" in str(caught.value.remedy)
