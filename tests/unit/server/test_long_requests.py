"""Requests with thousands of elements are handled in slices: no callback of the event loop handles all of them.

Every array of every API that a client can send is made long, one at a time.  Counted are the calls of Python functions
in one callback.  Not counted are constructors of dataclasses, the standard library, and decoding, which is in a thread.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import kctl.testing
from kctl.client.framing import request_frame
from kctl.errors import MalformedRequest
from kctl.protocol import codec
from kctl.protocol.definition import Field, definition_of
from kctl.protocol.registry import Api
from kctl.records.build import build_batch
from kctl.records.header import Record
from kctl.server.requests.context import Peer
from kctl.server.requests.dispatch import Dispatcher
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate

KCTL = Path(kctl.testing.__file__).parent.parent
NOT_COUNTED = (str(KCTL / "testing"), str(KCTL / "protocol"), str(KCTL / "records"), "<", sysconfig.get_path("stdlib"))
ELEMENTS = (7_000, 3_500)
"""The first of these numbers that the bound on the cost of decoding allows; any slice is much smaller."""
CALLS_MAX = 17_000
"""About 5 ms; 2,000 topics of a Metadata request, which are one slice, need 16,000."""
ELSEWHERE = frozenset({"leader_and_isr", "update_metadata", "stop_replica", "alter_user_scram_credentials"})
"""APIs with tests of their own, because of what their elements cost.  The last one checks them in a thread, which the
simulation runs on the loop.
"""

Place = tuple[str, ...]
"""The names of the nested fields that lead to an array."""


def arrays(cls: type, version: int, above: Place = ()) -> Iterator[Place]:
    """The arrays of a message."""
    for field in definition_of(cls).fields:
        if version not in field.versions:
            continue
        place = (*above, field.name)
        inner = field.struct
        if field.element is not None:
            yield place
            inner = field.element.struct
        if inner is not None:
            yield from arrays(inner, version, place)


def message(cls: type, version: int, long: Place, count: int, number: int = 0) -> Any:
    """A message with many elements in one array, and one in each other array."""
    fields = [field for field in definition_of(cls).fields if version in field.versions]
    return cls(**{field.name: value(field, version, long, count, number) for field in fields})


def value(field: Field, version: int, long: Place, count: int, number: int) -> Any:
    below = long[1:] if long[:1] == (field.name,) else ()
    if field.struct is not None:
        return message(field.struct, version, below, count, number)
    if field.element is not None:
        numbers = range(count if long == (field.name,) else 1)
        return [value(field.element, version, (field.element.name, *below), count, each) for each in numbers]
    match field.kind:
        case "string":
            return f"name-{number}"
        case "records":
            return build_batch([Record(0, 0, None, b"value")])
        case "bytes":
            return b""
        case "boolean":
            return field.name == "validate_only"
        case "float64":
            return 1.0
        case "uuid":
            return UUID(int=number + 1)
        case "int8" | "int16":
            return 1
        case _:
            return number


@contextmanager
def most_calls() -> Iterator[list[int]]:
    """The largest number of calls in one callback inside of the block."""
    most = [0, 0]

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        if name.endswith("asyncio/events.py") and frame.f_code.co_name == "_run":
            most[1] = 0
        elif not name.startswith(NOT_COUNTED):
            most[1] += 1
            most[0] = max(most)

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        yield most
    finally:
        sys.setprofile(former)


def frame(api: Api, long: Place) -> bytes:
    """The request as a frame without its length."""
    version = api.served[-1]
    for count in ELEMENTS:
        request = message(api.request, version, long, count)
        with suppress(MalformedRequest):
            codec.decode(api.request, codec.encode_bytes(request, version), version)
            return b"".join(request_frame(request, version, correlation_id=1, client_id="client"))[4:]
    raise AssertionError(f"{api.name} cannot be long in {long}")


async def calls_of(dispatcher: Dispatcher, received: bytes) -> int:
    with most_calls() as most:
        reply = dispatcher.handle(memoryview(bytearray(received)), Peer("/client", "PLAINTEXT"))
        if isinstance(reply, asyncio.Future):
            await reply
    return most[0]


def test_requests_with_thousands_of_elements_are_handled_in_slices() -> None:
    calls: dict[str, int] = {}

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop)
        await cluster.start(1)
        broker = cluster.brokers[0].broker
        assert broker is not None
        dispatcher = broker._dispatcher
        for api, _, _ in list(dispatcher._handlers.values()):
            if api.name not in ELSEWHERE:
                for place in arrays(api.request, api.served[-1]):
                    calls[f"{api.name} {'.'.join(place)}"] = await calls_of(dispatcher, frame(api, place))
        await cluster.stop()

    simulate(main, seed=1)
    assert len(calls) > 50
    long = {place: count for place, count in calls.items() if count >= CALLS_MAX}
    assert not long, long
