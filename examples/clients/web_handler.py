#!/usr/bin/env python3
"""A web server that produces: POST /KEY writes the body to a topic and responds when the record is stored.

python examples/clients/web_handler.py localhost:9092 orders 8080
curl --data '12 apples' localhost:8080/customer-1
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from kctl.client import AsyncProducer, ProducerConfig
from kctl.errors import ApiError, ErrorCode, KctlError

BODY_BYTES_MAX = 1 << 20


async def respond(producer: AsyncProducer, topic: str, reader: asyncio.StreamReader) -> tuple[HTTPStatus, object]:
    """Read one request, and send its body; all requests share the batches of the producer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    length = sum(int(line.partition(":")[2]) for line in head[1:] if line.lower().startswith("content-length:"))
    if method != "POST":
        return HTTPStatus.METHOD_NOT_ALLOWED, "only POST"
    if length > BODY_BYTES_MAX:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES_MAX} bytes"
    try:
        result = await producer.send(topic, await reader.readexactly(length), key=path.strip("/"))
        stored = await result
    except ApiError as error:
        is_too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if is_too_large else HTTPStatus.SERVICE_UNAVAILABLE, str(error)
    except KctlError as error:  # no broker is reached, for example: the caller may try again
        return HTTPStatus.SERVICE_UNAVAILABLE, str(error)
    return HTTPStatus.CREATED, {"partition": stored.partition, "offset": stored.offset}


async def handle(
    producer: AsyncProducer, topic: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Respond to one request and close the connection."""
    try:
        status, body = await respond(producer, topic, reader)
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        status, body = HTTPStatus.BAD_REQUEST, str(error)
    text = json.dumps(body).encode()
    writer.write(b"HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n" % (status, status.phrase.encode(), len(text)) + text)
    writer.close()


async def serve(bootstrap: str, topic: str, port: int, on_start: Callable[[int], None] = print) -> None:
    """Serve until the task is cancelled; what was accepted until then is sent when the block ends."""
    config = ProducerConfig(bootstrap_servers=bootstrap, delivery_timeout_ms=10_000, request_timeout_ms=5_000)
    async with AsyncProducer(config) as producer:
        server = await asyncio.start_server(partial(handle, producer, topic), "127.0.0.1", port)
        async with server:
            on_start(server.sockets[0].getsockname()[1])
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
