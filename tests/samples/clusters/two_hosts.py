"""Two network namespaces joined by a link stand for two hosts. Needs root and the command ``ip``."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Final, Literal, Self

ADDRESSES: Final = ("10.77.0.1", "10.77.0.2")
Cut = Literal["link down", "packets lost"]
_NOBODY = "02:00:00:00:00:99"


def why_not() -> str | None:
    """The reason why namespaces cannot be made here; None if they can."""
    if shutil.which("ip") is None:
        return "the command ip is missing: apt-get install iproute2"
    name = f"shardmill-try-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"network namespaces need root and a kernel that allows them: {done.stderr.strip()}"
    _ip("netns", "del", name)
    return None


class TwoHosts:
    """Two hosts with an address each. A context manager: they are gone afterwards.

    Attributes:
        prefixes: the words before a command that runs on each host.
    """

    def __init__(self) -> None:
        self._names = [f"shardmill-{os.getpid()}-{number}" for number in range(2)]
        self._devices = [f"sm{os.getpid() % 10_000_000}v{number}" for number in range(2)]
        self.prefixes = [["ip", "netns", "exec", name] for name in self._names]

    def __enter__(self) -> Self:
        for name in self._names:
            _ip("netns", "add", name)
        first, second = self._devices
        peer = ["peer", "name", second, "netns", self._names[1]]
        _ip("link", "add", first, "netns", self._names[0], "type", "veth", *peer)
        for name, device, address in zip(self._names, self._devices, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._names:
            _ip("netns", "del", name)

    def cut(self, how: Cut) -> None:
        """Interrupt the link: it has no carrier and no route any more, or all packets are lost silently."""
        if how == "link down":
            _ip("-n", self._names[1], "link", "set", self._devices[1], "down")
            return
        for own, other in ((0, 1), (1, 0)):
            self._neighbour("replace", own, other, "lladdr", _NOBODY, "nud", "permanent")

    def mend(self, how: Cut) -> None:
        """Let packets through again."""
        if how == "link down":
            _ip("-n", self._names[1], "link", "set", self._devices[1], "up")
            return
        for own, other in ((0, 1), (1, 0)):
            self._neighbour("del", own, other)

    def _neighbour(self, verb: str, own: int, other: int, *more: str) -> None:
        _ip("-n", self._names[own], "neigh", verb, ADDRESSES[other], "dev", self._devices[own], *more)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
