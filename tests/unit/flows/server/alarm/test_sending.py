"""Unusable URLs are refused, and messages that are not taken are errors, without the secret in the URL."""

from __future__ import annotations

import pytest

from shardmill.flows.server.alarm.destinations import (
    Message,
    NotSent,
    check_occasions,
    check_url,
    kind_of,
    send,
)
from shardmill.infra.errors import UsageError

# A plugin of Apprise imports it.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://", "the webhook has no host"),
        ("https://[::1/secret", "the webhook has no host"),
        ("secret", "not the URL of a webhook or of Apprise"),
        ("nosuch://secret@host", "not the URL of a webhook or of Apprise"),
    ],
)
def test_nobody_to_tell_is_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)


def test_an_unknown_occasion_is_refused() -> None:
    with pytest.raises(UsageError, match="--on never: not an occasion"):
        check_occasions(["failed", "never"])


@pytest.mark.parametrize("scheme", ["http", "json"])  # a webhook, and a service of Apprise
def test_a_message_that_nobody_takes_is_an_error_without_the_secret(scheme: str) -> None:
    message = Message("text", "failed", "event", "run", "2026-11-26T00:00:00+00:00")
    with pytest.raises(NotSent) as caught:
        send(f"{scheme}://user:password@127.0.0.1:9/secret-token", message)
    assert not any(word in str(caught.value) for word in ("secret-token", "password"))


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://localhost:8000/hook", "webhook"),
        ("HTTPS://example.com", "webhook"),
        ("mailtos://user:secret@smtp.example.com?to=team@example.com", "mailtos"),
        ("ntfy://topic", "ntfy"),
    ],
)
def test_webhooks_and_services_of_apprise_are_known(url: str, kind: str) -> None:
    check_url(url)
    assert kind_of(url) == kind
