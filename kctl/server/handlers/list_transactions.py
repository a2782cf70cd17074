"""ListTransactions (key 66, versions 0-2): the transactional ids that this broker coordinates.

Empty filters match everything; unknown state names are returned.  While a partition of the state topic loads, there is
no list, only COORDINATOR_LOAD_IN_PROGRESS.  KIP-664; newer than Kafka 2.8.

Version notes: 1 transactions that have run for longer than a duration (KIP-994); 2 a regular expression of RE2 that the
whole id matches, INVALID_REGULAR_EXPRESSION if it is not valid (KIP-1152).
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import partial

from kctl.errors import ApiError, ErrorCode
from kctl.limits import SLICE_OBJECTS, Subject, bound
from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from kctl.regex.automaton import Matcher
from kctl.regex.syntax import Alphabet, InvalidRegex
from kctl.security.acls import Operation, ResourceType
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.coordination.transactions.events import TransactionOverview
from kctl.server.loop.slices import release, sliced
from kctl.server.loop.tasks import in_thread
from kctl.server.requests.context import RequestContext

PATTERN_WORK_MAX = bound(
    Subject.COORDINATION,
    "work to match transactional ids with the pattern of ListTransactions",
    5_000_000,
    "places of the expression that are examined, about 4 s of a processor",
    on_excess="INVALID_REQUEST",
)
_OTHER = "\ufffd"


class ListTransactionsHandler:
    """Serves ListTransactions requests.  Owner: event loop."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    async def handle(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        """Serve one request and return the response."""
        pattern = request.transactional_id_pattern
        try:
            matcher = _IdMatcher(pattern) if pattern else None
        except InvalidRegex:
            return _refused(ErrorCode.INVALID_REGULAR_EXPRESSION)
        error, unknown, found = await self._coordinator.transactions(
            request.state_filters, set(request.producer_id_filters), longer_than_ms=request.duration_filter
        )
        if matcher is not None:
            try:
                found = await in_thread(partial(matcher.select, found))
            except ApiError as refusal:
                return _refused(refusal.code)
        states = [
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            async for transaction in sliced(found, SLICE_OBJECTS)
            if not _is_denied(transaction.transactional_id, context)
        ]
        await release([found])
        return ListTransactionsResponse(error_code=error, unknown_state_filters=unknown, transaction_states=states)


def _refused(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code, unknown_state_filters=[], transaction_states=[])


class _IdMatcher:
    """Matches transactional ids, which may have any characters, with a regular expression."""

    def __init__(self, pattern: str) -> None:
        """Raise InvalidRegex."""
        self._alphabet = Alphabet({*string.printable, *pattern, _OTHER})
        self._matcher = Matcher(pattern, self._alphabet)

    def select(self, transactions: Sequence[TransactionOverview]) -> list[TransactionOverview]:
        """Return the transactions whose id matches; in a thread.  Raises ApiError(INVALID_REQUEST) for long work."""
        selected = []
        for transaction in transactions:
            # No expression distinguishes characters that are neither in it nor in ASCII.
            name = "".join(
                character if character in self._alphabet.bits else _OTHER for character in transaction.transactional_id
            )
            if self._matcher.work + self._matcher.work_max(name) > PATTERN_WORK_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            if self._matcher.matches(name):
                selected.append(transaction)
        return selected


def _is_denied(transactional_id: str, context: RequestContext) -> bool:
    resource = ResourceType.TRANSACTIONAL_ID
    return bool(context.denied(Operation.DESCRIBE, resource, (transactional_id,), is_logged=False))
