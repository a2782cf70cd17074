"""Decodes and encodes the assignments of topics in ZooKeeper, those of many partitions in a thread.

10,000 partitions take 10 to 20 ms.
"""

from __future__ import annotations

from functools import partial

from kctl.limits import DECODED_AT_ONCE_BYTES_MAX, SLICE_OBJECTS
from kctl.server.thread_pool import in_thread
from kctl.zookeeper.znodes import TopicAssignment, decode_topic, encode_topic


async def decoded_topic(path: str, data: bytes) -> TopicAssignment:
    """The assignment of the topic in the path.  Raises ValueError."""
    if len(data) <= DECODED_AT_ONCE_BYTES_MAX:
        return decode_topic(path, data)
    return await in_thread(partial(decode_topic, path, data))


async def encoded_topic(assignment: TopicAssignment) -> bytes:
    """The content of the topic's znode."""
    if len(assignment.replicas) <= SLICE_OBJECTS:
        return encode_topic(assignment)
    return await in_thread(partial(encode_topic, assignment))
