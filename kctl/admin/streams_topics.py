"""Which topics belong to an application of Kafka Streams.  Pure."""

from __future__ import annotations

import re

_ENDINGS = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")
_FOREIGN_KEY_JOIN = re.compile(r".+-KTABLE-FK-JOIN-SUBSCRIPTION-(?:REGISTRATION|RESPONSE)-\d+-topic", re.ASCII)


def is_internal_topic(name: str, application_id: str) -> bool:
    """True for the names that Kafka Streams gives to the topics that it creates.

    Kafka: StreamsResetter.matchesInternalTopicFormat.
    """
    if not name.startswith(f"{application_id}-"):
        return False
    return name.endswith(_ENDINGS) or _FOREIGN_KEY_JOIN.fullmatch(name) is not None
