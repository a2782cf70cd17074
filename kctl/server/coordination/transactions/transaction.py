"""A transactional id: its producer, its transaction, and the decision about it.  The data; the rules are in `step`.

The model of a transaction
--------------------------------
A transactional id names a producer across restarts; at any time one producer id and epoch may write for it.  A new
instance (InitProducerId) gets a higher epoch, which fences the instance before it, first in the coordinator and then,
with the first write or marker of that epoch, on every partition.

    Empty ---add partitions---> Ongoing ---commit---> PrepareCommit ---markers written---> CompleteCommit
                                 ^    |
      Empty, CompleteCommit,     |    +----abort,---> PrepareAbort  ---markers written---> CompleteAbort
      CompleteAbort -------------+        time-out,
                                          new instance
      Empty, CompleteCommit, CompleteAbort ---InitProducerId---> Empty           ---unused for long---> removed

The decision is the Prepare record.  Before it is in the log (and replicated) no response is sent; once it is, the
transaction ends that way whatever happens: a coordinator that loads it sends the markers again, and writing a marker
twice is harmless.  So the request completes at Prepare, and the markers follow: one for each partition of the
transaction, written by that partition's leader.  When all are written, the Complete record is written, and only then
the next transaction may begin; until then the client gets CONCURRENT_TRANSACTIONS and retries.

One record is written to the log at a time (`write`); meanwhile every request gets CONCURRENT_TRANSACTIONS.  A record
that the log refuses, or that is not replicated in time, has changed nothing, with one exception: an epoch that was
incremented to fence a producer stays incremented in memory (`has_failed_fence`), and the next attempt reuses it.

Fencing an ongoing transaction aborts it with an incremented epoch that no producer ever gets (KIP-588): its markers
carry it, so that partitions refuse late writes of the old producer.  Epochs end at 32766, of which the last one serves
a transaction and the abort that fences it; then the producer gets another producer id.

KIP-360: a producer that has to restart sends its epoch.  If that is the current one it gets the next.  If it is the
previous one, the response to an earlier request was lost, and it gets the current one.  Any other producer is fenced.

KIP-890 (transaction.version 2): each end raises the epoch, too.  The Prepare record has the raised epoch, the markers
carry it, so that partitions refuse late writes of the ended transaction, and the response gives it to the producer.  A
repeated end is recognised by its epoch, which is one below.  If the raised epoch is 32767, the producer gets another id
with epoch 0 when the markers are written.  The end of a transaction without partitions is an abort that only raises the
epoch: partitions may be on their way.  Which of both ways a transaction ends is decided by the requests of its client.

Stored: producer id, epoch, timeout, state, partitions, timestamps, and for KIP-890 the client's version, the next and
the previous producer id.  Not stored: the previous epoch, so a KIP-360 retry to another coordinator is fenced.

Invariants (checked by the property tests): a Prepare is followed by the Complete of the same decision; epochs of a
producer id never decrease; every token is completed exactly once; a fenced producer changes nothing.

Owner: event loop.  Pure: no IO, no clock, no randomness; only `step` changes a Transaction.
Kafka: TransactionMetadata, TransactionCoordinator.
"""

from __future__ import annotations

from dataclasses import dataclass

from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.coordination.transactions.events import (
    NO_PRODUCER,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PREVIOUS_STATES,
    Outcome,
    Token,
    TransactionOverview,
    TransactionSnapshot,
    TransactionState,
)

EPOCH_MAX = (1 << 15) - 1
_LAST_EPOCH_OF_A_PRODUCER = EPOCH_MAX - 1


@dataclass(frozen=True, slots=True)
class Write:
    """A record that is being written to the log; None for a tombstone."""

    becomes: TransactionSnapshot | None
    token: Token | None = None
    """The request that waits for it."""
    outcome: Outcome | None = None
    """The result of that request when the record is written."""
    previous: ProducerIdAndEpoch = NO_PRODUCER
    """The producer's previous id and epoch, if it knows them: it sent them, or they were raised at an end."""
    is_fence: bool = False
    """The epoch was incremented for it already."""


class Transaction:
    """One transactional id.  Attributes are read-only for other modules; `step` changes them."""

    __slots__ = (
        "client_version",
        "has_failed_fence",
        "last_update_ms",
        "next_producer_id",
        "partitions",
        "previous",
        "producer",
        "replaced_producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "write",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer = NO_PRODUCER
        self.previous = NO_PRODUCER
        """The producer's id and epoch before its last InitProducerId, if it sent them, or before its last end."""
        self.timeout_ms = 0
        self.state = TransactionState.EMPTY
        self.partitions: dict[TopicPartition, None] = {}
        """The partitions of the ongoing transaction; after the decision, those whose marker is pending."""
        self.start_ms = NO_TIMESTAMP
        self.last_update_ms = NO_TIMESTAMP
        self.write: Write | None = None
        self.has_failed_fence = False
        self.client_version = 0
        self.next_producer_id = NO_PRODUCER_ID
        self.replaced_producer_id = NO_PRODUCER_ID

    @property
    def is_new(self) -> bool:
        """True if no producer id was assigned yet."""
        return self.producer == NO_PRODUCER

    @property
    def is_busy(self) -> bool:
        """True if requests have to wait: a record or markers are being written."""
        return self.write is not None or self.state.is_decided

    @property
    def is_vacant(self) -> bool:
        """True if removing it would lose nothing."""
        return self.is_new and self.write is None

    @property
    def is_epoch_exhausted(self) -> bool:
        """True if the producer id has no epoch left for a producer."""
        return self.producer.epoch >= _LAST_EPOCH_OF_A_PRODUCER

    @property
    def pending_markers(self) -> tuple[TopicPartition, ...]:
        """The partitions whose marker is pending."""
        return tuple(self.partitions) if self.state.is_decided else ()

    def next_epoch(self) -> ProducerIdAndEpoch:
        """Return the producer id with the next epoch."""
        assert self.producer.epoch < EPOCH_MAX
        return ProducerIdAndEpoch(self.producer.producer_id, self.producer.epoch + 1)

    def snapshot(self, state: TransactionState, now_ms: int) -> TransactionSnapshot:
        """Return a snapshot in `state`, with everything else unchanged."""
        return TransactionSnapshot(
            producer=self.producer,
            timeout_ms=self.timeout_ms,
            state=state,
            partitions=tuple(self.partitions),
            last_update_ms=now_ms,
            start_ms=self.start_ms,
            client_version=self.client_version,
            next_producer_id=self.next_producer_id,
        )

    def become(self, snapshot: TransactionSnapshot) -> None:
        """Take over a state that is in the log.  Raises AssertionError for an invalid transition."""
        assert self.state in PREVIOUS_STATES[snapshot.state], f"{self.state} -> {snapshot.state}"
        self._take(snapshot)

    @classmethod
    def restored(cls, transactional_id: str, snapshot: TransactionSnapshot) -> Transaction:
        """Return the transaction from its last record."""
        transaction = cls(transactional_id)
        transaction._take(snapshot)
        return transaction

    def describe(self) -> TransactionSnapshot:
        """Return the transaction for DescribeTransactions."""
        return self.snapshot(self.state, self.last_update_ms)

    def overview(self) -> TransactionOverview:
        """Return the transaction for ListTransactions."""
        return TransactionOverview(self.transactional_id, self.producer.producer_id, self.state)

    def _take(self, snapshot: TransactionSnapshot) -> None:
        self.producer = snapshot.producer
        self.timeout_ms = snapshot.timeout_ms
        self.state = snapshot.state
        self.partitions = dict.fromkeys(snapshot.partitions)
        self.start_ms = snapshot.start_ms
        self.last_update_ms = snapshot.last_update_ms
        self.client_version = snapshot.client_version
        self.next_producer_id = snapshot.next_producer_id
        self.replaced_producer_id = snapshot.replaced_producer_id
