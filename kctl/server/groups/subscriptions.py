"""What the members of a consumer group read, for the rules that spare offsets in use."""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import MalformedRequest
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription
from kctl.protocol.versioned import decode_body


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics named in any of the subscriptions; None when one of them cannot be read.

    Read as version 0 whatever they claim to be: every later version starts with it, and clients exist that claim
    version 1 without its new field.
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(decode_body(ConsumerProtocolSubscription, subscription, 0).topics)
    except MalformedRequest:
        return None
    return frozenset(topics)
