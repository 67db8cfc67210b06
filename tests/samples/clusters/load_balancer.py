"""A load balancer on this machine: passes TCP connections on to several servers, in turn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence

_BLOCK_BYTES = 65536


@contextlib.contextmanager
def balancing(ports: Sequence[int]) -> Iterator[int]:
    """Pass connections on to servers of this machine until the block ends; the port to connect to.

    A connection goes to the next server in turn, or to another one if that refuses.
    """
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(_Balancer(ports).passed_on, "127.0.0.1", 0))
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
    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._turn = itertools.count()

    async def passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on, to its end."""
        first = next(self._turn)
        with contextlib.suppress(OSError):
            for number in range(len(self._ports)):
                port = self._ports[(first + number) % len(self._ports)]
                try:
                    to_server = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    continue
                await asyncio.gather(_copy(reader, to_server[1]), _copy(to_server[0], writer))
                break
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy what one side sends, and close the other when it ends."""
    try:
        with contextlib.suppress(OSError):
            while block := await reader.read(_BLOCK_BYTES):
                writer.write(block)
                await writer.drain()
    finally:
        writer.close()
