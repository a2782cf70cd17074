"""Decodes znodes and encodes the assignments of topics, large ones in a thread.

10,000 partitions take 10 to 20 ms, and the reassignment of 18,000 partitions 190 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from kctl.limits import DECODED_AT_ONCE_BYTES_MAX, SLICE_OBJECTS
from kctl.server.loop.tasks import in_thread
from kctl.zookeeper.znodes import TopicAssignment, encode_topic

T = TypeVar("T")


async def decoded(decode: Callable[[str, bytes], T], path: str, data: bytes) -> T:
    """Return what `decode` makes of the znode at the path.

    Raises what `decode` raises, a ValueError for invalid data.
    """
    if len(data) <= DECODED_AT_ONCE_BYTES_MAX:
        return decode(path, data)
    return await in_thread(partial(decode, path, data))


async def encoded_topic(assignment: TopicAssignment) -> bytes:
    """Return the content of the topic's znode."""
    if len(assignment.replicas) <= SLICE_OBJECTS:
        return encode_topic(assignment)
    return await in_thread(partial(encode_topic, assignment))
