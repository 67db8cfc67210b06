"""Unusable URLs are refused before the server is asked, without showing the secret in the URL."""

from __future__ import annotations

import pytest

from flows.server.automations.notifications import check_url, kind_of, set_notification
from infra.errors import UsageError

# A plugin of Apprise imports it.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


@pytest.mark.parametrize(
    ("url", "on", "words"),
    [
        ("https://", "failed", "the webhook has no host"),
        ("https://[::1/secret", "failed", "the webhook has no host"),
        ("secret", "failed", "not the URL of a webhook or of Apprise"),
        ("nosuch://secret@host", "failed", "not the URL of a webhook or of Apprise"),
        ("https://example.com/secret", "never", "--on never: not an occasion"),
    ],
)
def test_nobody_to_tell_is_refused(url: str, on: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        set_notification(url, on)
    assert "secret" not in str(caught.value)


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
