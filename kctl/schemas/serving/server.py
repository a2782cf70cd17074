"""Runs a registry: one thread owns the state, the event loop has the topic and HTTP.

A change is answered after its records were read back from the topic, so that the state has one source.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import uvicorn

from kctl.client.cluster import ClusterClient
from kctl.errors import KctlError
from kctl.limits import Subject, bound
from kctl.schemas.formats.schema_parser import SchemaParser
from kctl.schemas.refusals import Refused
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import Answer, Request
from kctl.schemas.rules.routes import answer
from kctl.schemas.serving.protoc import compile_protobuf
from kctl.schemas.serving.schemas_topic import AnotherWriter, SchemasTopic
from kctl.schemas.serving.users import Users
from kctl.schemas.serving.web import RestApplication
from kctl.schemas.topic_records import TopicRecord, UnreadableRecord, change_of

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "connections and requests at the same time",
    1_000,
    "connections",
    on_excess="status 503",
)
HEAD_BYTES_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "request line and headers of one request",
    32 << 10,
    "bytes",
    on_excess="status 400, and the connection is closed",
)
_IDLE_S = 60
_STOP_S = 2
_STORE_ERROR = 50001


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where and how to serve."""

    host: str
    port: int
    topic: str
    users: Users = field(repr=False)


class RegistryServer:
    """Answers requests.  Owner: event loop."""

    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._registry = Registry(SchemaParser(compile_protobuf))
        self._topic = SchemasTopic(client, topic, self._apply)
        self._owner = ThreadPoolExecutor(1, thread_name_prefix="registry")
        """Its thread owns the registry."""
        self._one_change = asyncio.Lock()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, options: ServerOptions, on_serving: Callable[[str], None]) -> None:
        """Serve until the task is cancelled; `on_serving` gets the URL.  Raises KctlError."""
        listener = _listener(options.host, options.port)
        try:
            consumer = await self._topic.open()
            server = _Server(_config(RestApplication(self.handle, options.users)))
            following = asyncio.create_task(self._topic.follow(consumer))
            serving = asyncio.create_task(server.serve([listener]))
            try:
                on_serving(_url(options.host, listener.getsockname()[1]))
                await asyncio.wait((following, serving, self._failed), return_when=asyncio.FIRST_COMPLETED)
                for task in (self._failed, following, serving):
                    if task.done():
                        task.result()
            finally:
                server.should_exit = True
                following.cancel()
                await asyncio.gather(following, serving, return_exceptions=True)
        finally:
            listener.close()
            await self._topic.close()
            self._owner.shutdown(wait=False, cancel_futures=True)

    async def handle(self, request: Request) -> Answer:
        """Answer one request.  Raises Refused."""
        if request.method in {"GET", "HEAD"}:
            return await self._decide(request)
        async with self._one_change:
            found = await self._decide(request)
            if found.records:
                try:
                    await self._topic.write(found.records)
                except KctlError as error:
                    if isinstance(error, AnotherWriter) and not self._failed.done():
                        self._failed.set_exception(error)
                    logger.warning("a change failed error=%s", error)
                    raise Refused(_STORE_ERROR, f"Error in the backend Kafka store: {error}") from None
            return found

    async def _decide(self, request: Request) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._owner, answer, self._registry, request)

    def _apply(self, records: Sequence[TopicRecord]) -> None:
        self._owner.submit(self._apply_in_owner, records).result()

    def _apply_in_owner(self, records: Sequence[TopicRecord]) -> None:
        for record in records:
            try:
                change = change_of(record)
            except UnreadableRecord as error:
                logger.warning("a record has no effect key=%s reason=%s", record.key[:200], error)
                continue
            if change is not None:
                self._registry.state.apply(change)


class _Server(uvicorn.Server):  # type: ignore[misc]
    """The command ends its work itself when a signal arrives."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(application: RestApplication) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_STOP_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )


def _listener(host: str, port: int) -> socket.socket:
    """Return a bound socket.  Raises KctlError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise KctlError(
            f"the schema registry cannot listen on {host}:{port}: {error.strerror or error}: choose another --port"
        ) from None


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
