"""The commands of a test: one JSON object each, whose member `do` is the name of the command.

A response is a JSON object too, with the member `error` if the command was refused; nothing has been changed then.

Owner: event loop.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kctl.errors import ErrorCode
from kctl.limits import Subject, bound
from kctl.protocol import registry
from kctl.server.coordination.transactions.coordinator import TransactionCoordinator
from kctl.server.process.test_control.error_responses import check_failure
from kctl.server.process.test_control.failures import is_of_client
from kctl.server.process.test_control.requests import ControlledRequests, Slowness
from kctl.server.process.test_control.traffic import Exchange
from kctl.server.process.test_control.world import ControlledWorld
from kctl.server.requests.context import Peer

ADVANCE_MS_MAX = bound(
    Subject.TESTS,
    "time by which a clock is advanced at once, ten years",
    10 * 366 * 86_400_000,
    "ms",
    on_excess="the command of the test is refused",
)
LATENCY_MS_MAX = bound(
    Subject.TESTS,
    "latency of a slow network",
    3_600_000,
    "ms",
    on_excess="the command of the test is refused",
)
RESPONSE_BYTES_MAX = bound(
    Subject.TESTS,
    "bytes of requests and responses in one answer to the test, after the first",
    1 << 20,
    "bytes",
    on_excess="the test asks for the others",
)
_ADDRESSES_MAX = 1_000
_SESSION_TIMEOUT_MS = 10_000
_INT_MAX = 2**63 - 1

Arguments = Mapping[str, Any]
Answer = dict[str, Any]


class Commands:
    """Performs the commands on one broker."""

    def __init__(
        self,
        requests: ControlledRequests,
        controlled: ControlledWorld,
        transactions: Callable[[], TransactionCoordinator | None],
    ) -> None:
        self._requests = requests
        self._controlled = controlled
        self._transactions = transactions
        self._commands: dict[str, tuple[frozenset[str], Callable[[Arguments], Answer | Awaitable[Answer]]]] = {
            "fail_next": (
                frozenset({"api", "error", "topic", "client_id", "times", "probability", "seed"}),
                self._fail_next,
            ),
            "fault": (frozenset({"fault"}), self._fault),
            "clear": (frozenset({"fault"}), self._clear),
            "drop_connections": (frozenset({"client_id"}), self._drop_connections),
            "slow": (frozenset({"latency_ms", "bytes_per_second", "client_id"}), self._slow),
            "cut": (frozenset({"addresses"}), self._cut),
            "heal": (frozenset(), self._heal),
            "fill_disk": (frozenset(), self._fill_disk),
            "free_disk": (frozenset(), self._free_disk),
            "expire_session": (frozenset(), self._expire_session),
            "expire_transactions": (frozenset(), self._expire_transactions),
            "advance": (frozenset({"ms"}), self._advance),
            "cap_replication_factor": (frozenset({"maximum"}), self._cap_replication_factor),
            "accept_unsigned_tokens": (frozenset(), self._accept_unsigned_tokens),
            "requests": (frozenset({"after", "api", "client_id"}), self._recorded),
        }

    async def perform(self, request: object) -> Answer:
        """Return the answer to a command; a refusal is an answer with `error`."""
        try:
            if not isinstance(request, dict):
                raise ValueError("a command is a JSON object")
            name = request.get("do")
            if not isinstance(name, str) or name not in self._commands:
                raise ValueError(f"there is no command {name!r}; there are {', '.join(self._commands)}")
            known, command = self._commands[name]
            arguments = {key: value for key, value in request.items() if key != "do"}
            if unknown := sorted(arguments.keys() - known):
                raise ValueError(f"{name} has no argument {unknown[0]}")
            answer = command(arguments)
            return await answer if isinstance(answer, Awaitable) else answer
        except ValueError as error:
            return {"error": str(error)}

    # Requests.

    def _fail_next(self, arguments: Arguments) -> Answer:
        api = _api(arguments)
        if api is None:
            raise ValueError("fail_next needs the name of an API, such as Produce")
        name = _text(arguments, "error") or ""
        if name not in ErrorCode.__members__ or name == ErrorCode.NONE.name:
            raise ValueError(f"{name!r} is not an error of Kafka, such as NOT_LEADER_OR_FOLLOWER")
        code, topic = ErrorCode[name], _text(arguments, "topic")
        check_failure(api, code, topic)
        probability, seed = arguments.get("probability", 1.0), arguments.get("seed")
        if isinstance(probability, bool) or not isinstance(probability, int | float):
            raise ValueError(f"probability must be a number, not {probability!r}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | str)):
            raise ValueError(f"seed must be a whole number or a text, not {seed!r}")
        failure = self._requests.failures.add(
            api.key,
            code,
            draw=random.Random(seed).random,
            topic=topic,
            client_id=_text(arguments, "client_id"),
            times=_whole(arguments, "times", None),
            probability=float(probability),
        )
        return {"fault": failure.id}

    def _fault(self, arguments: Arguments) -> Answer:
        failure = self._requests.failures.find(_whole(arguments, "fault", None) or 0)
        if failure is None:
            raise ValueError("the fault was cleared, or the broker has been restarted")
        return {"failed": failure.failed, "left": failure.times}

    def _cap_replication_factor(self, arguments: Arguments) -> Answer:
        self._requests.replication_factor_max = _whole(arguments, "maximum", None, minimum=1, maximum=32_767)
        return {}

    def _clear(self, arguments: Arguments) -> Answer:
        self._requests.failures.remove(_whole(arguments, "fault", None))
        return {}

    def _recorded(self, arguments: Arguments) -> Answer:
        api, client_id = _api(arguments), _text(arguments, "client_id")
        traffic = self._requests.traffic
        exchanges: list[Answer] = []
        size, after = 0, _whole(arguments, "after", 0) or 0
        for exchange in traffic.after(after):
            is_wanted = (api is None or exchange.api_key == api.key) and client_id in {None, exchange.client_id}
            if is_wanted and exchanges and size + exchange.size > RESPONSE_BYTES_MAX:
                return {"exchanges": exchanges, "latest": after, "has_more": True}
            after = exchange.number
            if is_wanted:
                size += exchange.size
                exchanges.append(_described(exchange))
        return {"exchanges": exchanges, "latest": max(after, traffic.latest_number), "has_more": False}

    # Connections.

    def _drop_connections(self, arguments: Arguments) -> Answer:
        wanted = _text(arguments, "client_id")

        def is_chosen(peer: Peer) -> bool:
            client_id = self._requests.client_id_of(peer)
            if wanted is not None:
                return client_id == wanted
            return client_id is None or is_of_client(client_id)

        acceptor = self._controlled.acceptor
        return {"closed": 0 if acceptor is None else acceptor.close_connections(is_chosen)}

    def _slow(self, arguments: Arguments) -> Answer:
        latency_ms = _whole(arguments, "latency_ms", 0, maximum=LATENCY_MS_MAX) or 0
        rate = _whole(arguments, "bytes_per_second", None, minimum=1)
        is_slow = latency_ms > 0 or rate is not None
        self._requests.slowness = Slowness(latency_ms, rate, _text(arguments, "client_id")) if is_slow else None
        return {}

    def _cut(self, arguments: Arguments) -> Answer:
        addresses = arguments.get("addresses")
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            raise ValueError("addresses must be a list of HOST:PORT")
        if len(addresses) > _ADDRESSES_MAX:
            raise ValueError(f"at most {_ADDRESSES_MAX} addresses")
        self._controlled.transport.cut(addresses)
        return {}

    def _heal(self, _: Arguments) -> Answer:
        self._controlled.transport.heal()
        return {}

    # State.

    def _fill_disk(self, _: Arguments) -> Answer:
        self._controlled.files.is_full = True
        return {}

    def _free_disk(self, _: Arguments) -> Answer:
        self._controlled.files.is_full = False
        return {}

    async def _expire_session(self, _: Arguments) -> Answer:
        session = self._controlled.session
        if session is None or not session.session_id:
            raise ValueError("the broker has no ZooKeeper session now")
        expired = session.session_id
        await session.close_other(session.session_key, _SESSION_TIMEOUT_MS)
        return {"session_id": f"0x{expired:x}"}

    def _expire_transactions(self, _: Arguments) -> Answer:
        transactions = self._transactions()
        if transactions is None:
            raise ValueError("the broker does not serve yet")
        transactions.abort_ongoing()
        return {}

    def _accept_unsigned_tokens(self, _: Arguments) -> Answer:
        if listeners := self._controlled.beyond_loopback():
            raise ValueError(f"listener {listeners[0]} is not on a loopback address: its tokens need a signature")
        self._controlled.has_unsigned_tokens = True
        return {}

    async def _advance(self, arguments: Arguments) -> Answer:
        ms = _whole(arguments, "ms", None, maximum=ADVANCE_MS_MAX)
        if ms is None:
            raise ValueError("advance needs the time in ms")
        self._controlled.clock.advanced_ms += ms
        await asyncio.sleep(0)  # What is due is called before the answer is sent.
        return {"advanced_ms": self._controlled.clock.advanced_ms, "now_ms": self._controlled.clock.now_ms()}


def _described(exchange: Exchange) -> Answer:
    return {
        "number": exchange.number,
        "api_key": exchange.api_key,
        "client_id": exchange.client_id,
        "time_ms": exchange.time_ms,
        "request": base64.b64encode(exchange.request).decode(),
        "response": None if exchange.response is None else base64.b64encode(exchange.response).decode(),
        "is_answered": exchange.is_answered,
        "fault": exchange.failed_by,
    }


def _text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {value!r}")
    return value


def _whole(
    arguments: Arguments, name: str, default: int | None, *, minimum: int = 0, maximum: int = _INT_MAX
) -> int | None:
    value = arguments.get(name, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ValueError(f"{name} must be a whole number from {minimum} to {maximum}, not {value!r}")
    return value


def _api(arguments: Arguments) -> registry.Api | None:
    """Return the API with the name in Kafka's documentation.  Raises ValueError if there is none."""
    name = _text(arguments, "api")
    if name is None:
        return None
    for api in registry.all_apis().values():
        if api.kafka_name.lower() == name.lower():
            return api
    raise ValueError(f"{name!r} is not an API of Kafka, such as Produce, Fetch or JoinGroup")
