"""Tell people by webhook or mail when something happens, by an automation of Prefect's server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from infra.digests import digest_of
from infra.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from prefect.blocks.core import Block
    from prefect.events.actions import CallWebhook, SendNotification

_RUN, _SOURCE, _DATASET = "prefect.flow-run.*", "shardmill.source.*", "shardmill.dataset.*"
# The text of a message, in Prefect's templates.
_OF_RUN = "{{ flow_run.name }}: {{ flow_run.state.name }}. {{ flow_run.state.message }} {{ flow_run|ui_url }}"
_OF_SOURCE = "{{ event.resource.name }}: {{ event.payload.error }}"
_OF_DATASET = "{{ event.resource.name }} was published"


@dataclass(frozen=True, slots=True)
class Occasion:
    """An occasion for a message to people.

    Attributes:
        events: names of events, any of which counts.
        resource: kind of the resource of these events.
        text: the message, a template.
    """

    events: frozenset[str]
    resource: str
    text: str


OCCASIONS = {
    # A repeated failure with the same error ends in a state of another name, so no second message is sent.
    "failed": Occasion(frozenset({"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}), _RUN, _OF_RUN),
    "completed": Occasion(frozenset({"prefect.flow-run.Completed"}), _RUN, _OF_RUN),
    "published": Occasion(frozenset({"shardmill.dataset.published"}), _DATASET, _OF_DATASET),
    "failing": Occasion(frozenset({"shardmill.source.failing"}), _SOURCE, _OF_SOURCE),
    "recovered": Occasion(
        frozenset({"shardmill.source.recovered"}), _SOURCE, "{{ event.resource.name }} works again"
    ),
}


def set_notification(url: str, on: str) -> str:
    """Tell ``url`` of an occasion from now on; the same again replaces itself. Return the automation's name.

    Args:
        url: ``http://`` or ``https://``: a webhook, which gets JSON; any other: a URL of Apprise, such as
            ``mailtos://user:password@host?to=somebody@example.com``.
        on: a name in ``OCCASIONS``.

    Raises:
        UsageError: the URL or the occasion is not known. EnvironmentFault: the server refused.
    """
    occasion = _occasion(on)
    check_url(url)
    from prefect.client.orchestration import get_client
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.exceptions import PrefectHTTPStatusError

    # The name must not tell the URL: it holds a password or a token.
    name = f"shardmill-{on}-{digest_of([url, on], length=8)}"
    try:
        trigger = EventTrigger(
            expect=set(occasion.events),
            match={"prefect.resource.id": occasion.resource},
            posture=Posture.Reactive,
            threshold=1,
        )
        automation = AutomationCore(
            name=name,
            description=f"Made by shardmill notify --on {on}, for {kind_of(url)}",
            trigger=trigger,
            actions=[_action(url, name, on, occasion)],
        )
        with get_client(sync_client=True) as client:
            for before in client.read_automations_by_name(name):
                client.delete_automation(before.id)
            client.create_automation(automation)
    except PrefectHTTPStatusError as error:
        raise EnvironmentFault(
            f"Prefect's server refused the automation: {error}", "see its log: server.log"
        ) from error
    return name


def _occasion(on: str) -> Occasion:
    if on not in OCCASIONS:
        raise UsageError(f"--on {on}: not an occasion", f"one of: {', '.join(OCCASIONS)}")
    return OCCASIONS[on]


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


def _action(url: str, name: str, on: str, occasion: Occasion) -> CallWebhook | SendNotification:
    from prefect.blocks.webhook import Webhook
    from prefect.events.actions import CallWebhook, SendNotification
    from pydantic import SecretStr

    from flows.server.automations.apprise_block import AppriseUrl

    if kind_of(url) == "webhook":
        headers: Any = {"Content-Type": "application/json"}
        webhook = Webhook(method="POST", url=SecretStr(url), headers=headers)
        return CallWebhook(block_document_id=_saved(webhook, name), payload=_payload(on, occasion))
    block = AppriseUrl(url=SecretStr(url))
    return SendNotification(
        block_document_id=_saved(block, name), subject=f"Shardmill: {on}", body=occasion.text
    )


def _payload(on: str, occasion: Occasion) -> str:
    """Return the JSON that a webhook gets, as a template. ``text`` is what chat services show."""
    return (
        f"{{% set text %}}{occasion.text}{{% endset %}}"
        f'{{"text": {{{{ text|string|tojson }}}}, "on": "{on}", "event": {{{{ event.event|tojson }}}}, '
        '"resource": {{ event.resource.name|string|tojson }}, "at": {{ event.occurred|string|tojson }}}'
    )


def _saved(block: Block, name: str) -> Any:
    return block.save(name, overwrite=True)
