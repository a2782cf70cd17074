"""Requests with thousands of elements are handled in slices: no callback of the event loop handles all of them.

Every array of every API that a client can send is made long, one at a time.  Counted are the calls of Python functions
in one callback.  Not counted are constructors of dataclasses, the standard library, and decoding, which is in a thread.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

import kctl.testing
from kctl.client.connections.framing import request_frame
from kctl.errors import MalformedRequest
from kctl.protocol import codec
from kctl.protocol.registry import Api
from kctl.server.network.dispatch import Dispatcher
from kctl.server.requests.context import Peer
from kctl.testing.sim_cluster import SimCluster
from kctl.testing.sim_loop import SimLoop, simulate
from tests.hostile.frame_kinds import Place, arrays, message

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


@contextmanager
def most_calls() -> Iterator[list[int]]:
    """The largest number of calls in one callback inside of the block.

    A trace function is called for calls of Python functions only, a profile function for all their ends and for calls
    of functions in C, too.
    """
    most = [0, 0]

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        kind = kind_of(frame.f_code.co_filename)
        if kind is Kind.COUNTED:
            most[1] += 1
            most[0] = max(most)
        elif kind is Kind.OF_THE_LOOP and frame.f_code.co_name == "_run":
            most[1] = 0

    former = sys.gettrace()
    sys.settrace(note)
    try:
        yield most
    finally:
        sys.settrace(former)


class Kind(Enum):
    """Whose functions a file has."""

    OF_THE_LOOP = auto()
    COUNTED = auto()
    NOT_COUNTED = auto()


@cache
def kind_of(file: str) -> Kind:
    if file.endswith("asyncio/events.py"):
        return Kind.OF_THE_LOOP
    return Kind.NOT_COUNTED if file.startswith(NOT_COUNTED) else Kind.COUNTED


def frame(api: Api, long: Place) -> bytes:
    """The request as a frame without its length."""
    # Tagged fields, of which newer versions have more, are few in any request.
    for version, count in itertools.product(reversed(api.served), ELEMENTS):
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


@pytest.mark.long
def test_requests_with_thousands_of_elements_are_handled_in_slices() -> None:
    calls: dict[str, int] = {}

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop)
        await cluster.start(1)
        broker = cluster.brokers[0].broker
        assert broker is not None
        dispatcher = broker._dispatcher
        for api, *_ in list(dispatcher._handlers.values()):
            if api.name not in ELSEWHERE:
                for place in arrays(api.request, api.served[-1]):
                    calls[f"{api.name} {'.'.join(place)}"] = await calls_of(dispatcher, frame(api, place))
        await cluster.stop()

    simulate(main, seed=1)
    assert len(calls) > 50
    long = {place: count for place, count in calls.items() if count >= CALLS_MAX}
    assert not long, long
