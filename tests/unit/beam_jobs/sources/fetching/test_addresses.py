from __future__ import annotations

import pytest

from shardmill.beam_jobs.sources.fetching.addresses import BadAddress, read_address


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("http://Example.com:80/a b.jpg#top", "http://example.com/a%20b.jpg"),
        (" https://example.com ", "https://example.com/"),
        ("https://exämple.org/é.png?x=ü", "https://xn--exmple-cua.org/%C3%A9.png?x=%C3%BC"),
        ("http://[2001:db8::1]:8080/x", "http://[2001:db8::1]:8080/x"),
        ("http://h/../../etc/passwd", "http://h/etc/passwd"),
        ("https://h/i?id=7&size=l", "https://h/i?id=7&size=l"),
        ("https://h/i?id=7&Token=abc", "https://h/i?id=7"),
        ("https://h/i?expires=1&id=7", "https://h/i?expires=1&id=7"),
        ("https://h/i?Expires=1&Signature=abc&Key-Pair-Id=K&id=7", "https://h/i?id=7"),
        (
            "https://b.s3.amazonaws.com/i.jpg?X-Amz-Algorithm=A&X-Amz-Credential=c&X-Amz-Signature=s",
            "https://b.s3.amazonaws.com/i.jpg",
        ),
    ],
)
def test_an_address_has_one_form_and_shows_no_credentials(text: str, uri: str) -> None:
    assert read_address(text).uri == uri


def test_what_is_asked_for_keeps_the_credentials_in_its_query() -> None:
    assert read_address("https://H/i?token=abc#x").url == "https://h/i?token=abc"
    assert read_address("https://H:81/i").host == "h"


@pytest.mark.parametrize(
    "text",
    [
        "", "images/a.jpg", "ftp://h/a.jpg", "file:///etc/passwd", "javascript:alert(1)", "data:image/png,x",
        "http://", "http:///a.jpg", "http://a b/", "http://h:99999/", "http://h:x/", "http://[::1/", "http://h/\0",
        "http://user@h/", "https://user:secret@h/a.jpg", "https://user:sec/ret@h/a.jpg",
        "http://h/" + "a" * 70_000,
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        read_address(text)
    assert "secret" not in str(caught.value)
    assert "sec" not in str(caught.value)
