"""Keep the URLs that the alarm sends to and their occasions, in Prefect's database: a URL holds a secret.

A message goes to a webhook, or to a service that Apprise knows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shardmill.flows.flow_runs.api_requests import forget_secret, keep_secret, read_block, read_secrets
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

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


LOG = logging.getLogger("shardmill.alarm")

FAILED, COMPLETED, UNCHANGED, PROBLEM = "failed", "completed", "unchanged", "problem"
PUBLISHED, FAILING, RECOVERED = "published", "failing", "recovered"

OCCASIONS = {
    FAILED: "a run failed, crashed or was cancelled, or the platform has a problem",
    PROBLEM: "the platform has a problem, such as a source that cannot be listed; it is over",
    COMPLETED: "a run completed and did something",
    UNCHANGED: "a run found nothing to do, or was skipped or postponed",
    PUBLISHED: "a version was published",
    FAILING: "the source of a scheduled run began to fail",
    RECOVERED: "the source of a scheduled run works again",
}

_PREFIX = "shardmill-notify-"
# Earlier releases made an automation of Prefect for each occasion, and a block of the same name for its URL.
_EARLIER = re.compile(r"shardmill-(failed|completed|published|failing|recovered)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL that gets messages about some occasions."""

    url: str
    on: frozenset[str]

    @property
    def name(self) -> str:
        """Its name, which does not tell the URL."""
        return f"notify-{digest_of(self.url, length=8)}"

    def __str__(self) -> str:
        return f"{self.name} ({kind_of(self.url)})"

    def wants(self, on: str) -> bool:
        """Tell whether it gets a message about an occasion; not if another message to it says the same."""
        if on == PROBLEM:
            return bool(self.on & {PROBLEM, FAILED})
        if on == FAILING and FAILED in self.on:
            return False  # the run that began to fail is told of
        return on in self.on


def set_destination(client: SyncPrefectClient, url: str, on: Iterable[str]) -> Destination:
    """Send messages about these occasions to a URL too from now on.

    Args:
        client: client of the server.
        url: ``http://`` or ``https://``: a webhook, which gets JSON; any other: a URL of Apprise, such as
            ``mailtos://user:password@host?to=somebody@example.com``.
        on: names in ``OCCASIONS``.

    Raises:
        UsageError: the URL or an occasion is not known.
    """
    wanted = frozenset(on)
    check_occasions(wanted)
    check_url(url)
    known = [one.on for one in read_destinations(client) if one.url == url]
    destination = Destination(url, wanted.union(*known))
    keep_secret(_block(destination.name), {"url": url, "on": sorted(destination.on)})
    return destination


def check_occasions(on: Iterable[str]) -> None:
    """Raise UsageError for a name that is not an occasion."""
    for each in sorted(set(on) - set(OCCASIONS)):
        raise UsageError(f"--on {each}: not an occasion", f"one of: {', '.join(OCCASIONS)}")


def read_destinations(client: SyncPrefectClient) -> list[Destination]:
    """All destinations, by name. A block of another form is logged and left out."""
    found = []
    for name, value in read_secrets(client, _PREFIX).items():
        try:
            found.append(Destination(str(value["url"]), frozenset(map(str, value["on"]))))
        except (TypeError, KeyError):
            LOG.warning("the block %s does not name whom to tell: delete it", name)
    return sorted(found, key=lambda one: one.name)


def remove_destination(client: SyncPrefectClient, name: str) -> None:
    """Send a destination no messages any more.

    Raises:
        NotFoundError: there is none of this name.
    """
    if not forget_secret(client, _block(name)):
        raise NotFoundError(f"nobody is told under the name {name}", "list them: shardmill notify")


def take_over_automations(client: SyncPrefectClient) -> int:
    """Make destinations of the automations of earlier releases, and delete these; return their number.

    An automation that somebody paused stays as it is.
    """
    earlier = [
        (automation, match[1])
        for automation in client.read_automations()
        if automation.enabled and (match := _EARLIER.fullmatch(automation.name))
    ]
    for automation, on in earlier:
        block = read_block(client, automation.name)
        if block is None or "url" not in block:
            continue
        set_destination(client, str(block["url"]), [on])
        client.delete_automation(automation.id)
        forget_secret(client, automation.name)
    return len(earlier)


def _block(name: str) -> str:
    return _PREFIX + name.removeprefix("notify-")
