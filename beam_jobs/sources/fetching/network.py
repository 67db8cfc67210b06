"""Connect to allowed network addresses only: the address that was checked is the one that is used.

The name of a host may lead to a machine of one's own network, and may lead elsewhere a moment later. So a
name is resolved once, its addresses are checked, and the connection is made to one of those, by number. The
name is still what certificates are checked against.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable

import httpcore

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_COMPATIBLE = ipaddress.ip_network("::/96")  # RFC 4291, 2.5.5.1: likewise, out of use


class PrivateAddress(Exception):
    """A host has no public address."""


class UnknownHost(Exception):
    """There is no host of this name."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Makes connections for ``httpcore``.

    Args:
        allow_private: connect to loopback, link-local, private and multicast addresses too.
        resolve: returns the addresses of a host, in the order in which to try them.
    """

    def __init__(self, *, allow_private: bool, resolve: Resolve | None = None) -> None:
        self._allow_private = allow_private
        self._resolve = resolve or resolve_host
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the host's allowed addresses that answers.

        Raises:
            PrivateAddress: it has none that is allowed. UnknownHost: it has none.
            httpcore.ConnectError, httpcore.ConnectTimeout: none answers.
        """
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"the name {host} was not resolved in time") from error
        allowed = [address for address in addresses if self._allow_private or is_public(address)]
        if not allowed:
            raise PrivateAddress(host)
        for number, address in enumerate(allowed, 1):
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(allowed):
                    raise
        raise AssertionError("unreachable")

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await self._network.sleep(seconds)


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host as numbers, in the system's order.

    Raises:
        UnknownHost: there is no such host. httpcore.ConnectError: it cannot be looked up now.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            raise UnknownHost(host) from error
        raise httpcore.ConnectError(f"the name {host} cannot be resolved") from error
    except (UnicodeError, OSError) as error:  # a part of the name is empty or too long
        raise UnknownHost(host) from error
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def is_public(address: str) -> bool:
    """Return whether an address, as a number, is one of the public internet.

    An IPv6 address that stands for an IPv4 address is as public as that one.
    """
    found: IpAddress = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and (found in _NAT64 or (found in _COMPATIBLE and int(found) > 1)):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast
