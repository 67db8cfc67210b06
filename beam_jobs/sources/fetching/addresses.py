"""Addresses of images: checked, written in one form, and shown without the credentials in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx

SCHEMES = ("http", "https")

# Parameters of a query that let their owner in. Those that merely name an image have other names.
_SECRETS = re.compile(
    r"x-(amz|goog)-(credential|signature|security-token|date|expires|algorithm|signedheaders)"
    r"|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id"
    r"|sig|token|access_token|auth|apikey|api_key|password"
)
_SIGNED_ONLY = frozenset({"expires", "policy"})  # mean something only beside a signature
_BLANK = re.compile(r"[\x00-\x20\x7f]")


class BadAddress(ValueError):
    """A text is no address that can be fetched. The message does not repeat the text."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an image.

    Attributes:
        uri: for people, records and comparison: without credentials.
        url: what is asked for. May hold credentials in its query: it is never shown or stored.
    """

    uri: str
    url: str

    @property
    def host(self) -> str:
        """The host in lower case, without its port."""
        return httpx.URL(self.url).host.lower()


def read_address(text: str) -> Address:
    """Read an address, such as a table holds.

    Returns:
        The address with its host in lower case, unsafe characters escaped, and without a fragment.

    Raises:
        BadAddress: it is no http or https address, or holds a user name or a password.
    """
    try:
        url = httpx.URL(text.strip())
        host = url.raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError) as error:
        raise BadAddress("its address cannot be understood") from error
    if url.scheme not in SCHEMES:
        raise BadAddress("its address does not begin with http:// or https://")
    if not host or "%" in host or _BLANK.search(host) or not 0 < (url.port or 80) < 1 << 16:
        raise BadAddress("its address names no host")
    if url.userinfo:
        raise BadAddress("its address holds a user name or a password")
    url = url.copy_with(fragment=None, raw_path=url.raw_path)  # "/" where there is no path
    return Address(public_uri(url), str(url))


def public_uri(url: httpx.URL) -> str:
    """Return an address without its user, fragment, and the credentials in its query."""
    url = url.copy_with(fragment=None, username=None, password=None)
    query = url.query.decode("ascii", "replace")
    parts = [part for part in query.split("&") if part]
    names = [part.partition("=")[0].lower() for part in parts]
    is_signed = any("signature" in name or name == "sig" for name in names)
    kept = [
        part
        for part, name in zip(parts, names, strict=True)
        if not _SECRETS.fullmatch(name) or (name in _SIGNED_ONLY and not is_signed)
    ]
    if len(kept) == len(parts):
        return str(url)
    return str(url.copy_with(query="&".join(kept).encode() if kept else None))
