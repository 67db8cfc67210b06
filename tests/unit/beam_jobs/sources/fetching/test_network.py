from __future__ import annotations

import asyncio
import socket

import httpcore
import pytest

from shardmill.beam_jobs.sources.fetching.network import (
    CheckedNetwork,
    PrivateAddress,
    UnknownHost,
    is_public,
    resolve_host,
)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "224.0.0.1", "239.255.255.250", "255.255.255.255", "192.0.2.1", "198.18.0.1",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::",
        "2002:7f00:1::1",
    ],
)  # fmt: skip
def test_addresses_of_ones_own_networks_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "151.101.1.69", "2606:4700::6810:84e5", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


def test_a_name_that_leads_to_this_machine_is_refused() -> None:
    async def connect() -> None:
        await CheckedNetwork(allow_private=False).connect_tcp("localhost", 80, timeout=5)

    with pytest.raises(PrivateAddress):
        asyncio.run(connect())


@pytest.mark.parametrize("number", ["2130706433", "0x7f.1", "0177.0.0.1"])
def test_a_number_that_means_this_machine_is_refused(number: str) -> None:
    async def connect() -> None:
        await CheckedNetwork(allow_private=False).connect_tcp(number, 80, timeout=5)

    with pytest.raises((PrivateAddress, UnknownHost)):  # as the system's resolver reads it
        asyncio.run(connect())


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to() -> None:
    """The second answer of a name server that rebinds is not asked for."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def resolve(host: str, _port: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        async def connect(*, allow_private: bool) -> None:
            network = CheckedNetwork(allow_private=allow_private, resolve=resolve)
            stream = await network.connect_tcp("example.org", port, timeout=5)
            await stream.aclose()

        asyncio.run(connect(allow_private=True))
        assert asked == ["example.org"]
        with pytest.raises(PrivateAddress):
            asyncio.run(connect(allow_private=False))
        assert asked == ["example.org"] * 2


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def resolve(_host: str, _port: int) -> list[str]:
            return ["127.0.0.2", "127.0.0.1"]

        async def connect() -> None:
            stream = await CheckedNetwork(allow_private=True, resolve=resolve).connect_tcp(
                "h", port, timeout=5
            )
            await stream.aclose()

        asyncio.run(connect())


def test_a_name_server_that_does_not_answer_is_waited_for_no_longer_than_for_a_connection() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    async def connect() -> None:
        await CheckedNetwork(allow_private=True, resolve=resolve).connect_tcp("h", 80, timeout=0.05)

    with pytest.raises(httpcore.ConnectTimeout):
        asyncio.run(connect())


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".org", ""])
def test_names_that_no_host_can_have_are_unknown(host: str) -> None:
    with pytest.raises((UnknownHost, httpcore.ConnectError)):
        asyncio.run(resolve_host(host or ".", 80))
