"""Looks up the coordinators of groups and transactional ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_KEYS_VERSION_MIN = 4

Address = tuple[str, int]
Gather = Callable[[Sequence[Awaitable[FindCoordinatorResponse]]], Awaitable[list[FindCoordinatorResponse]]]
"""Runs all concurrently, if the transport supports that."""


async def find_coordinators(
    connection: Connection, keys: Sequence[str], key_type: int, gather: Gather
) -> dict[str, Address | ApiError]:
    """The address or the error of each key, by one request, or before Kafka 3.0 by one for each key (KIP-699)."""
    if connection.versions.highest(FindCoordinatorRequest) >= SEVERAL_KEYS_VERSION_MIN:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        response = await connection.send(request, FindCoordinatorResponse)
        found = {one.key: one for one in response.coordinators}
    else:
        requests = [FindCoordinatorRequest(key=key, key_type=key_type) for key in keys]
        responses = await gather([connection.send(request, FindCoordinatorResponse) for request in requests])
        found = {key: _only(key, response) for key, response in zip(keys, responses, strict=True)}
    return {key: _address(found.get(key)) for key in keys}


def _only(key: str, response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def _address(found: Coordinator | None) -> Address | ApiError:
    if found is None:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker's response does not contain this key.")
    code = ErrorCode.of(found.error_code)
    return (found.host, found.port) if code is ErrorCode.NONE else ApiError(code, found.error_message)
