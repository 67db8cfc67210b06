"""Locations of storage: their public part, folders below them, and paths from the root on."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import (
    absolute_path,
    below,
    name_of,
    object_location,
    object_path,
    public_location,
    public_values,
    uri_of,
    with_plain_endpoint,
    without_secrets,
)


@pytest.mark.parametrize(
    ("raw", "uri"),
    [
        (b"a/b.jpg", "a/b.jpg"),
        ("ünï/图.jpg".encode(), "ünï/图.jpg"),
        (b"caf\xe9.jpg", "caf\\xe9.jpg"),
        (b"back\\slash", "back\\slash"),
        (b"looks like \\xe9", "looks like \\x5cxe9"),
        (b"\\\xe9", "\\\\xe9"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),  # a surrogate, which UTF-8 forbids
    ],
)
def test_uris_are_text_and_lead_back(raw: bytes, uri: str) -> None:
    assert uri_of(os.fsdecode(raw)) == uri
    assert os.fsencode(name_of(uri)) == raw


@given(st.binary(max_size=40))
@example(b"\\\\x5c\\x5cx41\xff")
def test_every_name_leads_back_to_its_file(raw: bytes) -> None:
    uri = uri_of(os.fsdecode(raw))
    uri.encode("utf-8")
    assert os.fsencode(name_of(uri)) == raw


OPTIONS = "?endpoint_override=127.0.0.1:9000&scheme=http"


@pytest.mark.parametrize(
    ("location", "public"),
    [
        ("/a/b", "/a/b"),
        ("relative/a@b", "relative/a@b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        (f"s3://bucket/a{OPTIONS}", "s3://bucket/a"),
        ("s3://KEY:secret@bucket/a", "s3://bucket/a"),
        (f"s3://KEY:se%2Fcret@bucket/a@b{OPTIONS}", "s3://bucket/a@b"),
        ("s3://KEY:sec/ret@bucket/a", "s3://bucket/a"),
        ("hdfs://host:9000/a@b", "hdfs://host:9000/a@b"),
        ("az://account:key@container/a", "az://container/a"),
        (
            "abfs://container@account.dfs.core.windows.net/a/",
            "abfs://container@account.dfs.core.windows.net/a",
        ),
        ("gs://anonymous@bucket/a?retry_limit_seconds=5", "gs://bucket/a"),
    ],
)
def test_the_public_part_has_no_credentials_and_no_options(location: str, public: str) -> None:
    assert public_location(location) == public
    assert public_location(below(location, "x/y")) == f"{public}/x/y"
    assert location.partition("?")[2] in below(location, "x/y")


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ("endpoint_override=h:9000&scheme=http", "http://h:9000"),
        ("endpoint_override=h:9000", "https://h:9000"),
        ("endpoint_override=http://h:9000&scheme=http", "http://h:9000"),
        ("endpoint_override=http://h:9000/", "http://h:9000"),
        ("endpoint_override=HTTPS%3A%2F%2Fh&region=r", "https://h"),
        ("endpoint_override=[::1]:9000&scheme=HTTP", "http://[::1]:9000"),
        ("region=r", None),
    ],
)
def test_the_address_of_a_server_may_have_its_scheme(options: str, endpoint: str | None) -> None:
    for scheme in ("s3", "gs", "az"):
        found = object_location(f"{scheme}://K:S@bucket/a?{options}")
        assert found is not None
        assert found.endpoint == endpoint
    plain = with_plain_endpoint(f"s3://K:S@bucket/a?{options}")
    if endpoint is not None:
        scheme, _, server = endpoint.partition("://")
        assert parse_qs(plain.partition("?")[2])["endpoint_override"] == [server]
        assert parse_qs(plain.partition("?")[2])["scheme"] == [scheme]


@pytest.mark.parametrize(
    "options",
    [
        "endpoint_override=https://h&scheme=http",
        "endpoint_override=http://h/path",
        "endpoint_override=http://http://h",
        "endpoint_override=ftp://h",
        "endpoint_override=h&scheme=http://",
        "endpoint_override=http://me:hidden@h",
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_wrong_address_of_a_server_is_refused(options: str, scheme: str) -> None:
    with pytest.raises(StorageError, match=r"(is|are) no address") as caught:
        Storage.at(f"{scheme}://account@bucket/a?{options}")
    assert "endpoint_override=http://HOST:PORT" in str(caught.value.remedy)
    assert "hidden" not in str(caught.value)


def test_messages_of_libraries_lose_the_secrets() -> None:
    location = "s3://KEY:se%2Fcret@bucket/a?region=us-east-1&token=abc"
    text = f"Cannot parse '{location}': secret se/cret of KEY with abc in us-east-1"
    assert without_secrets(text, location) == (
        "Cannot parse 's3://bucket/a': secret *** of *** with *** in us-east-1"
    )
    assert without_secrets("KEY", "/local") == "KEY"


@pytest.mark.parametrize(
    "location",
    ["s3://KEY:hidden@bu cket/a", "s3://KEY:hid/den@bucket/a", "s3://KEY:hidden@bucket/a?secret=hid"],
)
def test_an_error_of_opening_shows_no_credentials(location: str) -> None:
    with pytest.raises(StorageError, match="cannot open storage s3://bu") as caught:
        Storage.at(location)
    assert "hid" not in str(caught.value)
    assert "KEY" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_object_store_travels_with_its_options_and_shows_none() -> None:
    storage = Storage.at(f"s3://KEY:hidden@bucket/a{OPTIONS}&region=us-east-1").child("b")
    again = pickle.loads(pickle.dumps(storage))
    assert again.location == storage.location == f"s3://KEY:hidden@bucket/a/b{OPTIONS}&region=us-east-1"
    assert again.uri == "s3://bucket/a/b"
    assert repr(again) == "Storage('s3://bucket/a/b')"
    assert not again.is_local


def test_a_folder_has_one_path_from_wherever_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("project/photos", "photos/2026", "elsewhere/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "newest").symlink_to(tmp_path / "photos")
    (tmp_path / "project/away").symlink_to(tmp_path / "elsewhere/deep")
    monkeypatch.chdir(tmp_path / "project")
    assert absolute_path("../photos") == absolute_path(str(tmp_path / "photos")) == f"{tmp_path}/photos"
    assert absolute_path("photos/../../photos/2026") == f"{tmp_path}/photos/2026"
    assert absolute_path("../newest/2026") == f"{tmp_path}/newest/2026", "links keep their names"
    assert absolute_path("away/../missing") == f"{tmp_path}/elsewhere/missing", "as the system understands it"
    assert absolute_path("..") == str(tmp_path)


@pytest.mark.parametrize(
    ("location", "account"),
    [
        ("az://container/a/b", ""),
        ("az://account@container/a/b?region=x", "account"),
        ("abfs://container@account.dfs.core.windows.net/a/b", "account"),
        ("abfss://container@account.blob.core.windows.net/a/b/", "account"),
    ],
)
def test_each_form_of_an_azure_location_names_its_container(location: str, account: str) -> None:
    found = object_location(location)
    assert found is not None
    assert (found.scheme, found.bucket, found.user) == ("az", "container", account)
    assert object_path(location) == "container/a/b"


def test_azure_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StorageError, match="no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME"):
        Storage.at("az://container/a")
    with pytest.raises(StorageError, match="does not name a container and an account"):
        Storage.at("abfs://container/a")
    assert Storage.at("az://account:a2V5@container/a").uri == "az://container/a"


def test_settings_are_shown_without_the_credentials_of_their_locations() -> None:
    settings = {
        "table": {"file": "s3://KEY:secret@bucket/t.csv?region=eu", "prefix": "a/b"},
        "files": ["az://account:key@container/x", "/data/s3 files/y"],
        "overrides": ("source.table.file=gs://anonymous@bucket/t.csv", "seed=3"),
        "seed": 3,
        "none": None,
    }
    assert public_values(settings) == {
        "table": {"file": "s3://bucket/t.csv", "prefix": "a/b"},
        "files": ["az://container/x", "/data/s3 files/y"],
        "overrides": ("source.table.file=gs://bucket/t.csv", "seed=3"),
        "seed": 3,
        "none": None,
    }
