"""DescribeUserScramCredentials (key 50, version 0): mechanisms and iterations of users, never the secrets.  KIP-554.

Any broker reads them from ZooKeeper.  A null or empty list means all users with credentials.  A user listed twice gets
DUPLICATE_RESOURCE, one without credentials RESOURCE_NOT_FOUND.
"""

from __future__ import annotations

from collections import Counter

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kctl.security.acls import Operation
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, Outcome, outcome_of
from kctl.server.security.scram_alterations import iterations_by_mechanism
from kctl.zookeeper import paths

_NAMED_TWICE = Outcome(ErrorCode.DUPLICATE_RESOURCE, "The user is in the request more than once.")


class DescribeUserScramCredentialsHandler:
    """Serves DescribeUserScramCredentials requests.  Owner: event loop."""

    def __init__(self, topics: TopicWriter) -> None:
        self._topics = topics

    async def handle(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        """Serve one request and return the response."""
        if not context.allows_on_cluster(Operation.DESCRIBE):
            return DescribeUserScramCredentialsResponse(
                error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.message, results=[]
            )
        results: list[DescribeUserScramCredentialsResult] = []
        if request.users:
            named = Counter(user.name for user in request.users)
            results = [await self._result(user, is_repeated=count > 1) for user, count in named.items()]
            return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=results)
        outcome = await outcome_of(self._describe_all(results))
        return DescribeUserScramCredentialsResponse(
            error_code=outcome.code, error_message=outcome.message or "", results=results
        )

    async def _describe_all(self, results: list[DescribeUserScramCredentialsResult]) -> None:
        """Add the credentials of all users to `results`, or raise ZooKeeperError."""
        for element in await self._topics.config_entities("users"):
            if element == paths.DEFAULT_ENTITY:
                continue
            result = await self._result(paths.desanitize(element), is_repeated=False)
            if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                results.append(result)

    async def _result(self, user: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
        infos: list[CredentialInfo] = []
        outcome = _NAMED_TWICE if is_repeated else await outcome_of(self._describe(user, infos))
        return DescribeUserScramCredentialsResult(
            user=user, error_code=outcome.code, error_message=outcome.message or "", credential_infos=infos
        )

    async def _describe(self, user: str, infos: list[CredentialInfo]) -> None:
        """Add the credentials of a user to `infos`, or raise ApiError or ZooKeeperError."""
        if not user:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "The user name is empty.")
        config = await self._topics.config(f"users/{paths.sanitize(user)}")
        credentials = iterations_by_mechanism(config)
        if not credentials:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"User {user} has no SCRAM credentials.")
        infos += [CredentialInfo(mechanism=mechanism, iterations=count) for mechanism, count in credentials.items()]
