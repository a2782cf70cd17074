"""Parses the subscriptions of a consumer group, for the rules that keep offsets in use."""

from __future__ import annotations

from collections.abc import Iterable

from kctl.errors import MalformedRequest
from kctl.limits import GROUP_SUBSCRIBED_TOPICS_MAX
from kctl.protocol.consumer_protocol import ConsumerProtocolSubscription
from kctl.protocol.versioned import decode_body


class SubscribedTopics:
    """Collects the topics in any of the subscriptions of a group."""

    def __init__(self) -> None:
        self._topics: set[str] | None = set()

    def add(self, subscription: bytes) -> None:
        """Parses the subscription of a member.

        All are parsed as version 0, with which every later version starts: some clients claim version 1 without its
        new field.
        """
        if self._topics is None:
            return
        try:
            self._topics.update(decode_body(ConsumerProtocolSubscription, subscription, 0).topics)
        except MalformedRequest:
            self._topics = None
        else:
            if len(self._topics) > GROUP_SUBSCRIBED_TOPICS_MAX:
                self._topics = None

    @property
    def known(self) -> frozenset[str] | None:
        """The topics; None if a subscription cannot be parsed, or if there are too many topics."""
        return None if self._topics is None else frozenset(self._topics)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in any of the subscriptions, see SubscribedTopics.known."""
    topics = SubscribedTopics()
    for subscription in subscriptions:
        topics.add(subscription)
    return topics.known
