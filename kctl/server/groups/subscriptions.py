"""What the members of a consumer group read, for the rules that spare offsets in use."""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import MalformedRequest
from kctl.protocol.consumer_protocol import decode_subscription


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics named in any of the subscriptions; None when one of them cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(decode_subscription(subscription).topics)
    except MalformedRequest:
        return None
    return frozenset(topics)
