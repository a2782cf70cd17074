"""A transactional id: its producer, its transaction, and what is decided about it.  Here lies the data; rules: step.

How to think about a transaction
--------------------------------
A transactional id names a producer across restarts; at any time one producer id and epoch may write for it.  A new
instance (InitProducerId) gets a higher epoch, which shuts out whoever was there before it, first here and then, with
the first write or marker of that epoch, on every partition.

    Empty ---add partitions---> Ongoing ---commit---> PrepareCommit ---markers written---> CompleteCommit
                                 ^    |
      Empty, CompleteCommit,     |    +----abort,---> PrepareAbort  ---markers written---> CompleteAbort
      CompleteAbort -------------+        time-out,
                                          new instance
      Empty, CompleteCommit, CompleteAbort ---InitProducerId---> Empty           ---unused for long---> forgotten

The decision is the Prepare record.  Before it is in the log (and replicated) nothing is told to anybody; once it is,
the transaction ends that way whatever happens: a coordinator that reads it back sends the markers again, and partitions
take a marker twice without harm.  So the client is answered at Prepare already, and the markers follow: one for each
partition of the transaction, written by that partition's leader.  When all are written the Complete record says so,
and only then may the next transaction begin; until then the client is told CONCURRENT_TRANSACTIONS and asks again.

One record is on its way to the log at a time (`write`), and while it is, every request is told to come again.  A record
that the log refuses, or that is not replicated in time, has changed nothing, with one exception: an epoch that was
raised to fence somebody stays raised in memory (`has_failed_fence`), and is not raised again by the next attempt.

Fencing an ongoing transaction aborts it with a raised epoch which no producer ever gets to know (KIP-588): its markers
carry it, so that late writes of the old producer are refused by the partitions.  Epochs end at 32766, of which the last
one is good for a transaction and for the abort that fences it; then the producer gets another producer id.

KIP-360: a producer that has to start over says which epoch it has.  If that is the present one it gets the next.  If it
is the one before, the answer to an earlier call got lost, and it gets the present one.  Everybody else was replaced.

What is on record: producer id, epoch, time-out, state, partitions, times.  What is not: the epoch before this one, so a
KIP-360 retry that meets another coordinator is fenced.

Invariants (checked by the property tests): a Prepare is followed by the Complete of the same outcome; epochs of a
producer id never go down; every token is answered exactly once; a fenced producer changes nothing.

Owner: event loop.  Pure: no IO, no clock, no chance; only `step` changes a Transaction.
Kafka: TransactionMetadata, TransactionCoordinator.
"""

from __future__ import annotations

from dataclasses import dataclass

from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.server.transactions.actions import NO_PRODUCER, Outcome
from kctl.server.transactions.events import Token
from kctl.server.transactions.snapshot import NO_TIMESTAMP, TransactionOverview, TransactionSnapshot
from kctl.server.transactions.states import PREVIOUS_STATES, TransactionState

EPOCH_MAX = (1 << 15) - 1
_LAST_EPOCH_OF_A_PRODUCER = EPOCH_MAX - 1


@dataclass(frozen=True, slots=True)
class Write:
    """A record on its way to the log; None for a tombstone."""

    becomes: TransactionSnapshot | None
    token: Token | None = None
    """The call that waits for it."""
    outcome: Outcome | None = None
    """What that call is told when the record is there."""
    previous: ProducerIdAndEpoch = NO_PRODUCER
    """What the producer had before, if it said so."""
    is_fence: bool = False
    """The epoch was raised for it already."""


class Transaction:
    """One transactional id.  Attributes are for reading; `step` changes them."""

    __slots__ = (
        "has_failed_fence",
        "last_update_ms",
        "partitions",
        "previous",
        "producer",
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
        """What the producer had before its last InitProducerId, if it said so then."""
        self.timeout_ms = 0
        self.state = TransactionState.EMPTY
        self.partitions: dict[TopicPartition, None] = {}
        """Of the ongoing transaction; once it is decided, those whose marker is still owed."""
        self.start_ms = NO_TIMESTAMP
        self.last_update_ms = NO_TIMESTAMP
        self.write: Write | None = None
        self.has_failed_fence = False

    @property
    def is_new(self) -> bool:
        """Whether nobody ever got a producer id for it."""
        return self.producer == NO_PRODUCER

    @property
    def is_busy(self) -> bool:
        """Whether requests have to wait: a record is on its way, or markers are."""
        return self.write is not None or self.state.is_decided

    @property
    def is_vacant(self) -> bool:
        """Whether forgetting it would lose nothing."""
        return self.is_new and self.write is None

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give to a producer."""
        return self.producer.epoch >= _LAST_EPOCH_OF_A_PRODUCER

    @property
    def owed(self) -> tuple[TopicPartition, ...]:
        """The partitions whose marker is owed."""
        return tuple(self.partitions) if self.state.is_decided else ()

    def next_epoch(self) -> ProducerIdAndEpoch:
        """The producer of the epoch after this one."""
        assert self.producer.epoch < EPOCH_MAX
        return ProducerIdAndEpoch(self.producer.producer_id, self.producer.epoch + 1)

    def snapshot(self, state: TransactionState, now_ms: int) -> TransactionSnapshot:
        """What it would be in `state`, everything else as it is."""
        return TransactionSnapshot(
            producer=self.producer,
            timeout_ms=self.timeout_ms,
            state=state,
            partitions=tuple(self.partitions),
            last_update_ms=now_ms,
            start_ms=self.start_ms,
        )

    def become(self, snapshot: TransactionSnapshot) -> None:
        """The one door to another state: the record is in the log."""
        assert self.state in PREVIOUS_STATES[snapshot.state], f"{self.state} -> {snapshot.state}"
        self._take(snapshot)

    @classmethod
    def restored(cls, transactional_id: str, snapshot: TransactionSnapshot) -> Transaction:
        """The transaction as its last record tells."""
        transaction = cls(transactional_id)
        transaction._take(snapshot)
        return transaction

    def describe(self) -> TransactionSnapshot:
        """For DescribeTransactions."""
        return self.snapshot(self.state, self.last_update_ms)

    def overview(self) -> TransactionOverview:
        """For ListTransactions."""
        return TransactionOverview(self.transactional_id, self.producer.producer_id, self.state)

    def _take(self, snapshot: TransactionSnapshot) -> None:
        self.producer = snapshot.producer
        self.timeout_ms = snapshot.timeout_ms
        self.state = snapshot.state
        self.partitions = dict.fromkeys(snapshot.partitions)
        self.start_ms = snapshot.start_ms
        self.last_update_ms = snapshot.last_update_ms
