"""What the level of a feature enables: the APIs of groups of newer protocols are advertised, but refused, at level 0.

As in Kafka 4.3, the response is UNSUPPORTED_VERSION, for each group where a request lists groups.  Requests between
brokers about the state of share groups are not refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.protocol.apis import (
    consumer_group_describe,
    describe_share_group_offsets,
    share_group_describe,
    streams_group_describe,
)
from kctl.protocol.registry import api_named
from kctl.server.cluster.configs.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, FinalizedFeatures
from kctl.server.loop.slices import sliced
from kctl.server.network.dispatch import Handler
from kctl.server.requests.context import RequestContext

FEATURE_OF_API = {
    "consumer_group_heartbeat": GROUP_VERSION,
    "consumer_group_describe": GROUP_VERSION,
    "share_group_heartbeat": SHARE_VERSION,
    "share_group_describe": SHARE_VERSION,
    "share_fetch": SHARE_VERSION,
    "share_acknowledge": SHARE_VERSION,
    "describe_share_group_offsets": SHARE_VERSION,
    "alter_share_group_offsets": SHARE_VERSION,
    "delete_share_group_offsets": SHARE_VERSION,
    "streams_group_heartbeat": STREAMS_VERSION,
    "streams_group_describe": STREAMS_VERSION,
}
"""The feature whose level 1 enables an API."""


_REFUSED = ErrorCode.UNSUPPORTED_VERSION
_DESCRIBED: dict[str, Any] = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "members": []}
_GROUP_STRUCTS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "consumer_group_describe": (consumer_group_describe.DescribedGroup, {**_DESCRIBED, "assignor_name": ""}),
    "share_group_describe": (share_group_describe.DescribedGroup, {**_DESCRIBED, "assignor_name": ""}),
    "streams_group_describe": (streams_group_describe.DescribedGroup, _DESCRIBED),
    "describe_share_group_offsets": (describe_share_group_offsets.ShareGroup, {"topics": []}),
}
"""The element of a response per group, and its fields beside id and error."""
_WITHOUT_ELEMENTS: dict[str, dict[str, Any]] = {
    "share_fetch": {"responses": [], "node_endpoints": []},
    "share_acknowledge": {"responses": [], "node_endpoints": []},
    "alter_share_group_offsets": {"responses": []},
    "delete_share_group_offsets": {"responses": []},
    "streams_group_heartbeat": {
        "member_id": "",
        "member_epoch": 0,
        "heartbeat_interval_ms": 0,
        "acceptable_recovery_lag": 0,
        "task_offset_interval_ms": 0,
        "status": None,
        "endpoint_information_epoch": 0,
    },
}
"""The fields of other responses beside the error."""


def gate(api_name: str, handler: Handler, features: FinalizedFeatures) -> Handler:
    """Return the handler of an API that refuses requests while its feature has level 0."""
    feature = FEATURE_OF_API.get(api_name)
    if feature is None:
        return handler

    def handle(request: Any, context: RequestContext) -> Any:
        if features.level(feature) > 0:
            return handler(request, context)
        return _refusal(api_name, request)

    return handle


def _refusal(api_name: str, request: Any) -> Any:
    if api_name in _GROUP_STRUCTS:
        return _refuse_groups(api_name, request)
    return api_named(api_name).response(error_code=_REFUSED, **_WITHOUT_ELEMENTS.get(api_name, {}))


async def _refuse_groups(api_name: str, request: Any) -> Any:
    """Return the response in which each group that is to be described has the error."""
    struct, fields = _GROUP_STRUCTS[api_name]
    ids = request.groups if api_name == "describe_share_group_offsets" else request.group_ids
    groups = [
        struct(group_id=getattr(group, "group_id", group), error_code=_REFUSED, **fields)
        async for group in sliced(ids, SLICE_OBJECTS)
    ]
    return api_named(api_name).response(groups=groups)
