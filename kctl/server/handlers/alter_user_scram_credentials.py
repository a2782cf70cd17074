"""AlterUserScramCredentials (key 51, version 0): sets or removes SCRAM credentials of users.  KIP-554.

Only the active controller serves it; other brokers respond with NOT_CONTROLLER.  The changes of one user succeed or
fail together.  Credentials are stored below /config/users, as Kafka does, and the change is announced.  Requires ALTER
on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from kctl.errors import ErrorCode
from kctl.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kctl.security import acls
from kctl.server.cluster.topics.writer import TopicWriter
from kctl.server.loop.slices import sliced
from kctl.server.loop.tasks import in_thread
from kctl.server.requests.context import RequestContext
from kctl.server.requests.outcomes import CLUSTER_DENIED, Outcome, outcome_of
from kctl.server.security.scram_alterations import Alteration, Deletion, Upsertion, altered, refusals
from kctl.zookeeper import paths

_NOT_CONTROLLER = Outcome(ErrorCode.NOT_CONTROLLER, "The active controller must alter SCRAM credentials.")


class AlterUserScramCredentialsHandler:
    """Serves AlterUserScramCredentials requests.  Owner: event loop."""

    def __init__(self, topics: TopicWriter, *, is_controller: Callable[[], bool]) -> None:
        self._topics = topics
        self._is_controller = is_controller

    async def handle(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        """Serve one request and return the response."""
        alterations = [alteration async for alteration in sliced(_alterations(request))]
        by_user: dict[str, list[Alteration]] = {}
        for alteration in alterations:
            by_user.setdefault(alteration.user, []).append(alteration)
        refused = await in_thread(partial(refusals, alterations))
        results = []
        is_allowed = context.allows_on_cluster(acls.Operation.ALTER)
        async for user, own in sliced(by_user.items()):
            if not self._is_controller():
                outcome = _NOT_CONTROLLER
            elif not is_allowed:
                outcome = CLUSTER_DENIED
            elif user in refused:
                outcome = Outcome.of(refused[user])
            else:
                change = partial(altered, alterations=own)
                outcome = await outcome_of(self._topics.update_config(f"users/{paths.sanitize(user)}", change))
            results.append(
                AlterUserScramCredentialsResult(user=user, error_code=outcome.code, error_message=outcome.message or "")
            )
        return AlterUserScramCredentialsResponse(results=results)


def _alterations(request: AlterUserScramCredentialsRequest) -> Iterator[Alteration]:
    for deletion in request.deletions:
        yield Deletion(deletion.name, deletion.mechanism)
    for new in request.upsertions:
        yield Upsertion(new.name, new.mechanism, new.iterations, bytes(new.salt), bytes(new.salted_password))
