"""Adds up the results of the rounds."""

from __future__ import annotations

from kctl.spark.verification.claims import Claim
from kctl.spark.verification.ledger import Difference, Gap, Judgement
from kctl.spark.verification.rows import DIFFERENT, EQUAL, NOT_COMPARED, GapRow, VerifiedRange

GAPS_MAX = 100
"""Ranges that are listed per partition; further ones are only counted."""
_HASH_MASK = (1 << 64) - 1


class Tally:
    """The result of one partition.  Owner: the verifier."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.compared_from = claim.compared.start
        """Later than in the claim if records were deleted from the topic meanwhile."""
        self._counts = dict.fromkeys(Difference, 0)
        self._topic = [0, 0]
        self._table = [0, 0]
        self._uncompared = 0
        self._gaps: list[Gap] = []
        self._first: tuple[int, Difference] | None = None

    def add(self, judgement: Judgement) -> None:
        """Adds the result of one round; rounds are in ascending order of offsets."""
        self._topic[0] += judgement.topic_records
        self._topic[1] = (self._topic[1] + judgement.topic_hash) & _HASH_MASK
        self._table[0] += judgement.table_records
        self._table[1] = (self._table[1] + judgement.table_hash) & _HASH_MASK
        self._uncompared += judgement.uncompared
        for kind, count in judgement.differences.items():
            self._counts[kind] += count
        self._first = self._first or judgement.first
        self._gaps = (self._gaps + judgement.gaps)[:GAPS_MAX]

    def add_outside(self, count: int, offset: int) -> None:
        """Adds rows whose offsets were not exported."""
        self._counts[Difference.UNEXPECTED] += count
        self._table[0] += count
        self._first = min(self._first or (offset, Difference.UNEXPECTED), (offset, Difference.UNEXPECTED))

    def rows(self, topic: str) -> list[VerifiedRange]:
        """The ranges of the partition, in ascending order."""
        claim = self.claim
        gaps = list(claim.gaps)
        if self.compared_from > claim.compared.start:
            gaps.append(Gap(claim.compared.start, self.compared_from, "deleted from the topic meanwhile"))
        partition = claim.exported.partition
        rows = [_gap_row(topic, partition, gap) for gap in gaps]
        if self.compared_from < claim.compared.end or self._first or not rows:
            rows.append(self._compared_row(topic, partition))
        return sorted(rows, key=lambda row: (row.start, row.end))

    def _compared_row(self, topic: str, partition: int) -> VerifiedRange:
        return VerifiedRange(
            topic=topic,
            partition=partition,
            start=self.compared_from,
            end=max(self.compared_from, self.claim.compared.end),
            status=DIFFERENT if self._first else EQUAL,
            topic_records=self._topic[0],
            table_records=self._table[0],
            topic_hash=f"{self._topic[1]:016x}",
            table_hash=f"{self._table[1]:016x}",
            missing=self._counts[Difference.MISSING],
            twice=self._counts[Difference.TWICE],
            different=self._counts[Difference.DIFFERENT],
            unexpected=self._counts[Difference.UNEXPECTED],
            not_compared=self._uncompared,
            offset=self._first[0] if self._first else None,
            difference=self._first[1].value if self._first else None,
            reason=", ".join(sorted({gap.reason for gap in self._gaps})) or None,
            gaps=[GapRow(*gap) for gap in self._gaps],
        )


def _gap_row(topic: str, partition: int, gap: Gap) -> VerifiedRange:
    return VerifiedRange(topic, partition, gap.start, gap.end, NOT_COMPARED, *(None,) * 11, gap.reason, [])
