"""The sockets of the embedded server's connections."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from kctl.zookeeper.embedded.connection import Connection
from kctl.zookeeper.embedded.server import EmbeddedZooKeeper


class Server(EmbeddedZooKeeper):
    """Keeps the last connection."""

    accepted: asyncio.Future[Connection]

    def connection_made(self, connection: Connection) -> bool:
        self.accepted.set_result(connection)
        return super().connection_made(connection)


def test_a_response_does_not_wait_until_the_one_before_is_acknowledged(tmp_path: Path) -> None:
    """Without TCP_NODELAY it waits for 40 ms: the client acknowledges late, unless it has something to send."""

    async def main() -> None:
        server = Server(tmp_path, host="127.0.0.1", port=0)
        server.accepted = asyncio.get_running_loop().create_future()
        await server.start()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        transport = (await server.accepted)._transport
        assert transport is not None
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await server.stop()

    asyncio.run(main())
