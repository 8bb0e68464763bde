"""Clients that ask coordinators, of groups and of transactions, until an answer is final."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.model.errors import ErrorCode
from barnabas.sim.client import PASSING, World
from barnabas.sim.committed import CommittedClient
from barnabas.sim.history import Violation
from barnabas.sim.transaction_history import TransactionHistory
from barnabas.wire.api import find_coordinator
from barnabas.wire.schema import Message

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""

RETRIED = PASSING | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
SAME_COORDINATOR = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


@dataclass(slots=True)
class Asked:
    """A request to a coordinator, which is repeated until its answer is final."""

    coordinator: tuple[str, int]
    request: Message
    version: int
    codes: Callable[[Any], Iterable[int]]
    then: Callable[[Any, ErrorCode], None]
    attempts: int = 0


class CoordinatedClient(CommittedClient):
    def __init__(
        self, world: World, name: str, rng: random.Random, topics: list[tuple[str, int]], book: TransactionHistory
    ) -> None:
        super().__init__(world, name, rng, topics, book)
        self.is_gone = False
        """It sends nothing any more."""
        self._coordinators: dict[tuple[str, int], int] = {}

    def ask(self, asked: Asked) -> None:
        if self.is_gone:
            return
        node_id = self._coordinators.get(asked.coordinator)
        if node_id is None:
            self._find(asked)
            return
        asked.attempts += 1
        self.call(asked.request, asked.version, lambda response: self._answered(asked, response), node_id)

    def _find(self, asked: Asked) -> None:
        key, key_type = asked.coordinator
        request = find_coordinator.FindCoordinatorRequest(key=key, key_type=key_type)
        self.call(request, 3, lambda response: self._found(asked, response))

    def _found(self, asked: Asked, response: Any) -> None:
        if response is not None and not response.error_code:
            self._coordinators[asked.coordinator] = response.node_id
        elif response is not None and ErrorCode(response.error_code) not in PASSING:
            raise Violation(f"{self.name} finds no coordinator: {ErrorCode(response.error_code).name}")
        self.later(lambda: self.ask(asked))

    def _answered(self, asked: Asked, response: Any) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else _gravest(asked.codes(response))
        if code not in RETRIED:
            asked.then(response, code)
            return
        if code not in SAME_COORDINATOR:
            self._coordinators.pop(asked.coordinator, None)
        self.later(lambda: self.ask(asked))


def _gravest(codes: Iterable[int]) -> ErrorCode:
    """One that ends the attempts comes before one after which the client tries again."""
    found = sorted({ErrorCode(code) for code in codes} - {ErrorCode.NONE}, key=lambda code: (code in RETRIED, code))
    return found[0] if found else ErrorCode.NONE
