"""A load balancer on this machine: passes TCP connections on to several servers, in turn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence

_BLOCK_BYTES = 65536


@contextlib.contextmanager
def balancing(ports: Sequence[int], delay_seconds: float = 0.0) -> Iterator[int]:
    """Pass connections on to servers of this machine until the block ends; the port to connect to.

    A connection goes to the next server in turn, or to another one if that refuses. What a client sends waits
    ``delay_seconds`` on the way, as if the servers were far.
    """
    loop = asyncio.new_event_loop()
    balancer = _Balancer(ports, delay_seconds)
    listening = loop.run_until_complete(asyncio.start_server(balancer.passed_on, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        waiting = asyncio.all_tasks(loop)
        for task in waiting:
            task.cancel()
        if waiting:
            loop.run_until_complete(asyncio.wait(waiting))
        loop.close()


class _Balancer:
    def __init__(self, ports: Sequence[int], delay_seconds: float) -> None:
        self._ports = list(ports)
        self._delay_seconds = delay_seconds
        self._turn = itertools.count()

    async def passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one connection until it ends, or until the balancer ends."""
        first = next(self._turn)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            for number in range(len(self._ports)):
                port = self._ports[(first + number) % len(self._ports)]
                try:
                    to_server = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    continue
                there = _copy(reader, to_server[1], self._delay_seconds)
                await asyncio.gather(there, _copy(to_server[0], writer))
                break
        writer.close()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float = 0.0
) -> None:
    """Copy what one side sends, each block after a delay, and close the other when it ends."""
    try:
        with contextlib.suppress(OSError):
            while block := await reader.read(_BLOCK_BYTES):
                await asyncio.sleep(delay_seconds)
                writer.write(block)
                await writer.drain()
    finally:
        writer.close()
