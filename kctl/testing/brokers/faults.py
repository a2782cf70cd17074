"""Faults on demand, the clock and the traffic of a broker that was started with `control=True`."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kctl.errors import ErrorCode
from kctl.protocol import codec, registry
from kctl.protocol.headers import decode_request_header, decode_response_header
from kctl.testing.brokers.control import Ask

WAIT_TIMEOUT_S = 30.0
_POLL_S = 0.02
_SIZE_BYTES = 4


class Fault:
    """A fault that `fail_next` has set."""

    def __init__(self, ask: Ask, fault_id: int) -> None:
        self._ask = ask
        self.id = fault_id

    @property
    def failed(self) -> int:
        """How many requests have failed."""
        return int(self._ask("fault", fault=self.id)["failed"])

    @property
    def left(self) -> int | None:
        """How many more requests are to fail; None without an end."""
        left = self._ask("fault", fault=self.id)["left"]
        return None if left is None else int(left)

    def clear(self) -> None:
        """Remove the fault: requests succeed again."""
        self._ask("clear", fault=self.id)


class BrokerClock:
    """The clock of a broker, which runs, and can be set forward."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.advanced_ms = 0
        """By how much it was set forward, over all starts of the broker."""

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Set the clock forward: timeouts that are over are due at once, each once.

        Raises ValueError for a time that is negative or too long.
        """
        delta = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if delta < timedelta(0):
            raise ValueError("a clock cannot be set back")
        delta_ms = delta // timedelta(milliseconds=1)
        self._ask("advance", ms=delta_ms)
        self.advanced_ms += delta_ms

    def now_ms(self) -> int:
        """Return the time of the broker, in ms since the epoch."""
        return int(self._ask("advance", ms=0)["now_ms"])

    def restore(self) -> None:
        """Set the clock of a broker that has been started again to what it was."""
        if self.advanced_ms:
            self._ask("advance", ms=self.advanced_ms)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request of a client and its response, as the broker has received and sent them."""

    api: str
    """The name in Kafka's documentation: Produce."""
    version: int
    client_id: str
    time_ms: int
    """When it arrived, in ms since the epoch by the clock of the broker."""
    request: Any
    """A dataclass of kctl.protocol.apis; None for one of more than 1 MiB."""
    response: Any
    """The same; None while there is none, for a request without one, and for one of more than 1 MiB."""
    is_answered: bool
    """Whether the request is done."""
    fault: int | None
    """The id of the fault with which it has failed; None for one that the broker has served."""


class BrokerFaults:
    """What a broker with `control=True` can do beside others; the methods raise RuntimeError without it."""

    clock: BrokerClock
    _seen_requests = 0
    """The number of the latest request that was forgotten."""

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Send a command to the broker."""
        raise NotImplementedError

    def fail_next(
        self,
        api: str,
        error: str,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
        probability: float = 1.0,
        seed: int | str | None = None,
    ) -> Fault:
        """Let the next requests of clients fail: nothing is done but to respond with this error.

        `api` and `error` are Kafka's names: "Produce", "NOT_LEADER_OR_FOLLOWER".  With `topic`, only its partitions
        fail, and the others in the same request succeed.  `times=None` is until the fault is cleared.  With
        `probability`, each request fails with this chance, in the same order for the same `seed`.

        Raises ValueError for an error that responses of this API never have; the text has those that they have.
        """
        answer = self.ask(
            "fail_next",
            api=api,
            error=error,
            topic=topic,
            client_id=client_id,
            times=times,
            probability=probability,
            seed=seed,
        )
        return Fault(self.ask, answer["fault"])

    def clear_faults(self) -> None:
        """Remove all faults of requests, and make the network fast and the disk empty again."""
        self.ask("clear")
        self.ask("slow")
        self.ask("free_disk")

    def drop_connections(self, *, client_id: str | None = None) -> int:
        """Close the connections of a client, by default those of all clients; return how many.

        The outcome of the requests that are waiting is unknown to their clients, as when a network fails.
        """
        return int(self.ask("drop_connections", client_id=client_id)["closed"])

    def slow(self, latency_ms: int = 0, bytes_per_second: int | None = None, *, client_id: str | None = None) -> None:
        """Delay each response, and limit the bytes of request and response together; without arguments no longer."""
        self.ask("slow", latency_ms=latency_ms, bytes_per_second=bytes_per_second, client_id=client_id)

    def fill_disk(self) -> None:
        """Let all writes to the log directories fail as on a full disk (ENOSPC), until `free_disk` or the next start.

        As Kafka does, the broker takes the log directory offline, and ends if it was the only one: `start()` it again.
        """
        self.ask("fill_disk")

    def free_disk(self) -> None:
        """Let writes succeed again."""
        self.ask("free_disk")

    def expire_session(self) -> None:
        """End the ZooKeeper session of the broker, which then registers again in a new one."""
        self.ask("expire_session")

    def expire_transactions(self) -> None:
        """Abort the ongoing transactions that this broker coordinates, as if their timeout was over."""
        self.ask("expire_transactions")

    def requests(self, api: str | None = None, *, client_id: str | None = None) -> list[RecordedRequest]:
        """Return the latest requests of clients, the oldest first: since the start, or since `forget_requests`.

        The broker keeps at most 10,000 requests and 64 MiB.  Raises ValueError for an unknown API.
        """
        return list(self._recorded(api, client_id))

    def forget_requests(self) -> None:
        """Leave all requests until now out of `requests` and `wait_for`."""
        *_, self._seen_requests = (latest for _, latest in self._pages("ApiVersions", None))

    def wait_for(
        self,
        api: str,
        *,
        client_id: str | None = None,
        where: Callable[[RecordedRequest], bool] = lambda _: True,
        count: int = 1,
        timeout_s: float = WAIT_TIMEOUT_S,
    ) -> list[RecordedRequest]:
        """Return the requests that match as soon as there are `count`, with their responses.

        Requests that have arrived before count too, since the start or `forget_requests`.  Raises TimeoutError.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            matching = [
                recorded for recorded in self._recorded(api, client_id) if recorded.is_answered and where(recorded)
            ]
            if len(matching) >= count:
                return matching
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{len(matching)} of {count} {api} requests"
                    f"{'' if client_id is None else f' of {client_id}'} in {timeout_s:.0f} s"
                )
            time.sleep(_POLL_S)

    def _recorded(self, api: str | None, client_id: str | None) -> Iterator[RecordedRequest]:
        for exchanges, _ in self._pages(api, client_id):
            yield from map(_decoded, exchanges)

    def _pages(self, api: str | None, client_id: str | None) -> Iterator[tuple[list[dict[str, Any]], int]]:
        """Yield exchanges and the number up to which they are complete."""
        after, has_more = self._seen_requests, True
        while has_more:
            page = self.ask("requests", api=api, client_id=client_id, after=after)
            after, has_more = page["latest"], page["has_more"]
            yield page["exchanges"], after


def _decoded(exchange: dict[str, Any]) -> RecordedRequest:
    api = registry.api(exchange["api_key"])
    frame = base64.b64decode(exchange["request"])
    header, position = decode_request_header(frame) if frame else (None, 0)
    version = -1 if header is None else header.api_version
    request: Any = None
    if api is not None and version in api.versions:
        request, _ = codec.decode(api.request, frame, version, position)
    return RecordedRequest(
        api=str(exchange["api_key"]) if api is None else api.kafka_name,
        version=version,
        client_id=exchange["client_id"],
        time_ms=exchange["time_ms"],
        request=request,
        response=None if api is None or version < 0 else _response(api, version, exchange["response"]),
        is_answered=exchange["is_answered"],
        fault=exchange["fault"],
    )


def _response(api: registry.Api, version: int, encoded: str | None) -> Any:
    if encoded is None:
        return None
    frame = memoryview(base64.b64decode(encoded))[_SIZE_BYTES:]
    _, position = decode_response_header(frame, api.key, version)
    error = int.from_bytes(frame[position : position + 2], signed=True)
    if api.name == "api_versions" and error == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # KIP-511
    response: Any = codec.decode(api.response, frame, version, position)[0]
    return response
