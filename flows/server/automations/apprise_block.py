"""A block of Prefect that sends messages to any URL of Apprise: mail, chat services, telephones.

Prefect has blocks for some services of Apprise, but none for mail through your own server. The Prefect server
must know this class to send messages, so `shardmill up` imports it in the server's process.
"""

from __future__ import annotations

from prefect.blocks.notifications import AppriseNotificationBlock


class AppriseUrl(AppriseNotificationBlock):
    """Send messages to a URL of Apprise, such as ``mailtos://user:password@host?to=somebody@example.com``."""

    _block_type_name = "Shardmill Apprise URL"
    _block_type_slug = "shardmill-apprise-url"
