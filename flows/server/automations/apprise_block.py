"""A block of Prefect that sends messages to any URL of Apprise: mail, chat services, telephones.

Prefect has blocks for some services of Apprise, and none for mail by a server of one's own. The server must
know this class to send: `shardmill up` imports it in its server's process.
"""

from __future__ import annotations

from prefect.blocks.notifications import AppriseNotificationBlock


class AppriseUrl(AppriseNotificationBlock):
    """Send messages to a URL of Apprise, such as ``mailtos://user:password@host?to=somebody@example.com``."""

    _block_type_name = "Shardmill Apprise URL"
    _block_type_slug = "shardmill-apprise-url"
