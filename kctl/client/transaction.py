"""One transaction: what a producer writes in it, in any partitions, is seen by committed readers together or never.

Beginning one under a transactional id shuts out whoever wrote under it before, and aborts what that left open.  A
producer that dies leaves its transaction to the next one of its id, or to transaction.timeout.ms.  Source: KIP-98.
"""

from __future__ import annotations

import asyncio
from typing import Self

from kctl.client.cluster import ClusterClient, CoordinatorType
from kctl.client.framing import first_answer
from kctl.client.transport import Connection
from kctl.errors import ApiError, ErrorCode
from kctl.model import ProducerIdAndEpoch, TopicPartition
from kctl.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_TIMEOUT_MS = 60_000
"""transaction.timeout.ms of Kafka's producer."""

_BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})
"""The transaction before is still being ended."""
_WORDS = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer has taken the transactional id, or its time was over",
    ErrorCode.PRODUCER_FENCED: "another producer has taken the transactional id, or its time was over",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the broker allows no transaction.timeout.ms that long",
    ErrorCode.INVALID_TXN_STATE: "the transaction has been ended meanwhile",
}


class Transaction:
    """An open transaction.  Owner: event loop."""

    def __init__(self, client: ClusterClient, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self._client = client
        self._adding: dict[TopicPartition, asyncio.Task[None]] = {}

    @classmethod
    async def begin(
        cls, client: ClusterClient, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> Self:
        """Take the id over from whoever had it; after `timeout_ms` the coordinator aborts.  Raises ApiError."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        async def ask(connection: Connection) -> ProducerIdAndEpoch:
            response = await connection.send(request, InitProducerIdResponse)
            _raise_for(response.error_code, transactional_id)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        producer = await client.on_coordinator(transactional_id, ask, CoordinatorType.TRANSACTION, codes=_BUSY)
        return cls(client, transactional_id, producer)

    async def add(self, tp: TopicPartition) -> None:
        """Say that the transaction writes to `tp`; must be done before the first batch goes there.  Raises ApiError."""
        if tp not in self._adding:
            self._adding[tp] = asyncio.create_task(self._add(tp), name=f"add {tp} to a transaction")
        await self._adding[tp]

    async def commit(self) -> None:
        """All of it counts from now on.  Raises ApiError, and ClusterUnreachable: then nobody knows yet."""
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """None of it will ever count.  Raises ApiError and ClusterUnreachable: then its time-out aborts it."""
        await self._end(is_commit=False)

    async def _add(self, tp: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition])],
        )

        async def ask(connection: Connection) -> None:
            response = await connection.send(request, AddPartitionsToTxnResponse)
            answer = first_answer(first_answer(response.results).results)
            _raise_for(answer.error_code, self.transactional_id)

        await self._client.on_coordinator(self.transactional_id, ask, CoordinatorType.TRANSACTION, codes=_BUSY)

    async def _end(self, *, is_commit: bool) -> None:
        """Asking twice does no harm: a coordinator that has decided says so again."""
        if not self._adding:
            return  # Nothing was written, so the coordinator knows of no transaction.
        await asyncio.gather(*self._adding.values(), return_exceptions=True)
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=is_commit,
        )

        async def ask(connection: Connection) -> None:
            response = await connection.send(request, EndTxnResponse)
            _raise_for(response.error_code, self.transactional_id)

        await self._client.on_coordinator(self.transactional_id, ask, CoordinatorType.TRANSACTION, codes=_BUSY)


def _raise_for(error_code: int, transactional_id: str) -> None:
    if error_code:
        code = ErrorCode.of(error_code)
        raise ApiError(code, f"transactional id '{transactional_id}': {_WORDS.get(code, code.description)}")
