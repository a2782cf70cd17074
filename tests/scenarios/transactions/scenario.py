"""Scenarios about one transactional id: a line is an event or an expectation.

    init NAME [timeout_ms=N] [says=NAME]     NAME is one instance; it keeps the id and epoch that it is given.
                                             With `says` it names what that instance has (KIP-360).
    add NAME PARTITION ...    commit NAME    abort NAME
    markers PARTITION ...     these partitions have their marker
    wait 3s | 500ms
    timeouts                  the regular look for transactions that take too long
    expiry                    the periodic check for unused ids
    log holds | log releases [ERROR] | log refuses ERROR | log accepts
    completion                what was not noted is tried again
    restart                   another coordinator, with nothing but the log
    expect ...

Every answer that an instance gets must be expected, in its order: `expect a init NONE epoch=0` holds if the answer has
all these words.  `expect nothing` requires that no response is left, which is checked at the end of a scenario too.
`expect transaction STATE words...` looks at the transaction, `expect owed words...` at the markers that are owed, and
`expect log words...` at the newest record.  Producer ids count from 1000.
"""

from __future__ import annotations

from collections import defaultdict

from kctl.errors import ErrorCode
from kctl.model import ProducerIdAndEpoch
from kctl.server.coordination.transactions.events import Outcome, ProducerOutcome
from tests.scenarios.script import Script, expect_that, expect_words, partition_of
from tests.unit.transactions.world import TIMEOUT_MS, Token, TransactionWorld


class Scenario(Script):
    """Runs the lines of one scenario."""

    def __init__(self) -> None:
        self._world = TransactionWorld()
        self._world.holds_markers = True
        self._producers: dict[str, ProducerIdAndEpoch] = {}
        self._responses: defaultdict[str, list[str]] = defaultdict(list)
        self._waiting: list[tuple[str, str, Token]] = []

    def _init(self, words: list[str]) -> None:
        name, options = words[0], dict(word.split("=", 1) for word in words[1:])
        expected = self._producers[options["says"]] if "says" in options else None
        timeout_ms = int(options.get("timeout_ms", TIMEOUT_MS))
        self._waiting.append((name, "init", self._world.init(expected, timeout_ms=timeout_ms)))

    def _add(self, words: list[str]) -> None:
        name, *partitions = words
        token = self._world.add(self._producers[name], *map(partition_of, partitions))
        self._waiting.append((name, "add", token))

    def _commit(self, words: list[str]) -> None:
        self._end(words[0], "commit")

    def _abort(self, words: list[str]) -> None:
        self._end(words[0], "abort")

    def _end(self, name: str, how: str) -> None:
        token = self._world.end(self._producers[name], committed=how == "commit")
        self._waiting.append((name, how, token))

    def _markers(self, words: list[str]) -> None:
        self._world.write_markers([partition_of(word) for word in words])

    def _wait(self, words: list[str]) -> None:
        (text,) = words
        self._world.elapsed_ms += int(text[:-2]) if text.endswith("ms") else int(text[:-1]) * 1000

    def _timeouts(self, _words: list[str]) -> None:
        self._world.look_for_timeout()

    def _expiry(self, _words: list[str]) -> None:
        self._world.look_for_expiry()

    def _log(self, words: list[str]) -> None:
        world = self._world
        match words:
            case ["holds"]:
                world.holds_appends = True
            case ["releases", *error]:
                world.holds_appends = False
                while world.held:
                    world.finish_append(ErrorCode[error[0]] if error else ErrorCode.NONE)
            case ["refuses", error]:
                world.append_error = ErrorCode[error]
            case ["accepts"]:
                world.append_error = ErrorCode.NONE

    def _completion(self, _words: list[str]) -> None:
        self._world.try_completion_again()

    def _restart(self, _words: list[str]) -> None:
        old = self._world
        new = old.restart()
        self._collect()
        self._world = new

    def _expect(self, words: list[str]) -> None:
        self._collect()
        match words:
            case ["nothing"]:
                left = [text for texts in self._responses.values() for text in texts]
                expect_that(not left, "there are answers:\n" + "\n".join(left))
            case ["transaction", *claims]:
                expect_words(claims, self._transaction_text())
            case ["owed", *claims]:
                expect_words(claims, self._owed_text())
            case ["log", *claims]:
                expect_words(claims, self._log_text())
            case [name, *claims]:
                expect_that(bool(self._responses[name]), f"{name} has no answer")
                expect_words([name, *claims], self._responses[name].pop(0))

    def _collect(self) -> None:
        for name, call, token in list(self._waiting):
            if token.responses:
                self._waiting.remove((name, call, token))
                self._responses[name].append(self._response_text(name, call, token.responses[0]))

    def _response_text(self, name: str, call: str, outcome: Outcome) -> str:
        if isinstance(outcome, ErrorCode):
            return f"{name} {call} {outcome.name}"
        assert isinstance(outcome, ProducerOutcome)
        if outcome.error is not ErrorCode.NONE:
            return f"{name} {call} {outcome.error.name}"
        self._producers[name] = outcome.producer
        return f"{name} {call} NONE id={outcome.producer.producer_id} epoch={outcome.producer.epoch}"

    def _transaction_text(self) -> str:
        transaction = self._world.transaction
        gone = " gone" if self._world.is_discarded else ""
        producer = transaction.producer
        partitions = ",".join(map(str, transaction.partitions))
        return (
            f"{transaction.state.label} id={producer.producer_id} epoch={producer.epoch} partitions={partitions}{gone}"
        )

    def _owed_text(self) -> str:
        if not self._world.owed:
            return "nothing"
        sent = self._world.sent[-1]
        how = "commit" if sent.committed else "abort"
        return f"{how} epoch={sent.producer.epoch} " + " ".join(map(str, self._world.owed))

    def _log_text(self) -> str:
        expect_that(bool(self._world.log), "the log is empty")
        record = self._world.log[-1]
        if record is None:
            return "tombstone"
        partitions = ",".join(map(str, record.partitions))
        return f"{record.state.label} epoch={record.producer.epoch} partitions={partitions}"
