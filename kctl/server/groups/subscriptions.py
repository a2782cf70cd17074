"""Parses the subscriptions of a consumer group, for the rules that keep offsets in use."""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import MalformedRequest
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription
from kctl.protocol.versioned import decode_body


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in any of the subscriptions; None if one of them cannot be parsed.

    All are parsed as version 0, with which every later version starts: some clients claim version 1 without its new
    field.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(decode_body(ConsumerProtocolSubscription, subscription, 0).topics)
    except MalformedRequest:
        return None
    return frozenset(topics)
