"""Send one message to one place: a webhook, or a service that Apprise knows."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from shardmill.infra.errors import UsageError

_TIMEOUT_SECONDS = 10.0
_OK = 300  # HTTP statuses below it
_SECRET_CHARACTERS = 4  # a shorter part of a URL is no secret


@dataclass(frozen=True, slots=True)
class Message:
    """A message to people, and the JSON that a webhook gets.

    Attributes:
        text: in words; chat services with incoming webhooks show it.
        on: the occasion, such as ``failed``.
        event: what happened, such as ``prefect.flow-run.Failed``.
        resource: the name of the run, dataset or problem.
        at: when it happened (ISO 8601).
    """

    text: str
    on: str
    event: str
    resource: str
    at: str


class NotSent(Exception):
    """A message could not be sent. The text says why, without the URL, which holds a secret."""


def send(url: str, message: Message) -> None:
    """Send a message.

    Args:
        url: ``http://`` or ``https://``: a webhook, which gets JSON; any other: a URL of Apprise.
        message: the message.

    Raises:
        NotSent: the other side did not take it.
    """
    if kind_of(url) == "webhook":
        _post(url, message)
    else:
        _notify(url, message)


def _post(url: str, message: Message) -> None:
    import httpx

    try:
        answer = httpx.post(url, json=asdict(message), timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotSent(f"{type(error).__name__}: {_without(url, str(error))}") from error
    if answer.status_code >= _OK:
        raise NotSent(f"the webhook answered with status {answer.status_code}")


def _notify(url: str, message: Message) -> None:
    from apprise import Apprise, LogCapture

    service = Apprise.instantiate(url)
    if service is None:
        raise NotSent("Apprise does not know this kind of URL any more")
    with LogCapture(level=logging.WARNING, fmt="%(message)s") as log:  # type: ignore[no-untyped-call]
        is_sent = bool(Apprise([service]).notify(title=f"Shardmill: {message.on}", body=message.text))
        said = log.getvalue().strip()
    if not is_sent:
        raise NotSent(_without(url, said.splitlines()[-1] if said else "the service did not take it"))


def _without(url: str, text: str) -> str:
    """The text without the URL and the secrets in it."""
    parts = urlsplit(url)
    secrets = [url, parts.path.strip("/"), parts.query, parts.username, parts.password]
    for secret in secrets:
        if secret and len(secret) >= _SECRET_CHARACTERS:
            text = text.replace(secret, "***")
    return text


def check_url(url: str) -> None:
    """Raise UsageError if no message can be sent to ``url``. The error does not show the secret URL."""
    if kind_of(url) == "webhook":
        try:
            has_host = bool(urlsplit(url).hostname)
        except ValueError:
            has_host = False
        if not has_host:
            raise UsageError("the webhook has no host", "for example https://example.com/hook")
        return
    from apprise import Apprise

    if not re.match(r"[a-z][a-z0-9+.-]*://", url) or Apprise.instantiate(url) is None:
        raise UsageError(
            "not the URL of a webhook or of Apprise",
            'for example https://example.com/hook or "mailtos://user:password@smtp.example.com?to=me@example.com"',
        )


def kind_of(url: str) -> str:
    """Return ``webhook`` or the scheme of a URL of Apprise, such as ``mailtos``."""
    scheme = url.partition("://")[0].lower()
    return "webhook" if scheme in ("http", "https") else scheme
