"""File names as text: nothing lost, nothing that could harm."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardmill.infra.storage.names import name_of, uri_of


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
