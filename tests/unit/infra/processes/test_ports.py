"""Free ports: none that something else is about to listen on, and none twice."""

from __future__ import annotations

import pytest

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes import ports


class _Offers:
    """A socket whose system offers the same ports again and again."""

    offered = 0

    def __enter__(self) -> _Offers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def bind(self, _: tuple[str, int]) -> None:
        type(self).offered += 1

    def getsockname(self) -> tuple[str, int]:
        return "", 5000 + self.offered // 3


def test_a_port_that_is_offered_twice_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket", _Offers)
    assert len(set(ports.free_ports(5))) == 5
    own = ports.free_port()
    assert ports.free_port(other_than=(own, own + 1)) == own + 2


def test_no_port_is_left() -> None:
    with pytest.raises(EnvironmentFault, match="no port is free"):
        ports.free_port(other_than=range(1 << 16))
