"""Histories of transactions that chance rarely meets, played with whole nodes.

Each is played with clients of both transaction versions. ``transaction_mutants`` names the bugs that some of them are
there to find.
"""

from __future__ import annotations

from barnabas.model.errors import ErrorCode
from barnabas.sim.transactional_client import Dialect
from barnabas.wire.api.fetch import FetchRequest
from barnabas.wire.api.write_txn_markers import WriteTxnMarkersRequest
from tests.simulation.transaction_script import (
    FIRST,
    LEFT,
    RIGHT,
    SECOND,
    Script,
    TransactionSchedule,
    produced_codes,
)

TIMEOUT_MS = 3000
LONG_POLL_MS = 500
"""replica.fetch.wait.max.ms."""


def _commit_anew(schedule: TransactionSchedule, dialect: Dialect, number: int = 9) -> None:
    """The transactional id and the partitions are of use after all that happened."""
    script = Script(schedule, dialect, number).init().begin()
    for place in (LEFT, RIGHT):
        script.expect(script.write(place), f"the next transaction writes to {place}")
    script.expect(script.end(committed=True), "the next transaction commits")
    schedule.until(lambda: schedule.is_stable(LEFT) and schedule.is_stable(RIGHT), "its markers are written")


def coordinator_dies_before_markers(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """The commit is acknowledged, and no marker is written when the coordinator dies: the next one writes them."""
    schedule = TransactionSchedule(seed)
    coordinator = schedule.coordinator
    script = Script(schedule, dialect).init().begin()
    for place in (LEFT, RIGHT):
        script.expect(script.write(place, 2), f"it writes to {place}")
        schedule.hold(WriteTxnMarkersRequest, coordinator, schedule.leader_of(*place))
    script.expect(script.end(committed=True), "the commit is acknowledged")
    schedule.wait(200)
    schedule.expect(schedule.read_committed(LEFT) == [], "without a marker nothing is read")
    schedule.kill(coordinator)
    schedule.links.heal()
    schedule.until(lambda: schedule.coordinator not in (coordinator, -1), "another node coordinates")
    schedule.until(lambda: schedule.is_stable(LEFT) and schedule.is_stable(RIGHT), "it writes the markers")
    schedule.expect(len(schedule.read_committed(LEFT)) == len(schedule.read_committed(RIGHT)) == 2, "all is read")
    _commit_anew(schedule, dialect)
    schedule.finish()


def coordinator_dies_before_complete(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """Markers are written, and the coordinator dies before it hears of it: written again, they change nothing."""
    schedule = TransactionSchedule(seed)
    coordinator = schedule.coordinator
    script = Script(schedule, dialect).init().begin()
    for place in (LEFT, RIGHT):
        script.expect(script.write(place, 2), f"it writes to {place}")
        schedule.hold(WriteTxnMarkersRequest, schedule.leader_of(*place), coordinator, responses=True)
    script.expect(script.end(committed=True), "the commit is acknowledged")
    schedule.until(lambda: schedule.is_stable(LEFT) and schedule.is_stable(RIGHT), "the markers are written")
    schedule.kill(coordinator)
    schedule.links.heal()
    schedule.until(lambda: schedule.coordinator not in (coordinator, -1), "another node coordinates")
    _commit_anew(schedule, dialect)
    schedule.finish()


def coordinator_dies_within_end(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """The coordinator dies while it records the commit: the transaction is committed or aborted, on both partitions."""
    schedule = TransactionSchedule(seed)
    coordinator = schedule.coordinator
    script = Script(schedule, dialect).init().begin()
    for place in (LEFT, RIGHT):
        script.expect(script.write(place), f"it writes to {place}")
    end = schedule.replica_of(coordinator, "__transaction_state").log_end_offset
    script.ask_end(committed=True)
    schedule.until(
        lambda: schedule.replica_of(coordinator, "__transaction_state").log_end_offset > end, "the outcome is appended"
    )
    schedule.kill(coordinator, power=True)
    schedule.until(lambda: schedule.coordinator not in (coordinator, -1), "another node coordinates")
    _commit_anew(schedule, dialect)
    schedule.finish()


def unreplicated_outcome(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """The record of the commit is on no other node when the coordinator dies: no marker was written for it."""
    schedule = TransactionSchedule(seed)
    coordinator = schedule.coordinator
    script = Script(schedule, dialect).init().begin()
    for place in (LEFT, RIGHT):
        script.expect(script.write(place), f"it writes to {place}")
        schedule.hold(FetchRequest, schedule.leader_of(*place), coordinator, listener="PLAINTEXT")
    schedule.hold(WriteTxnMarkersRequest, coordinator, schedule.leader_of(*RIGHT))
    schedule.wait(600)
    answer = script.ask_end(committed=True)
    schedule.wait(1000)
    schedule.expect(not answer.has_ended, "a commit that is not replicated is not acknowledged")
    schedule.expect(not schedule.is_stable(LEFT), "no marker is written")
    schedule.kill(coordinator)
    schedule.links.heal()
    schedule.until(lambda: schedule.coordinator not in (coordinator, -1), "another node coordinates")
    _commit_anew(schedule, dialect)
    schedule.finish()


def marker_leader_moves(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """The leader of one partition dies while its marker is on the way: its successor gets the marker."""
    schedule = TransactionSchedule(seed)
    leader = schedule.leader_of(*LEFT)
    script = Script(schedule, dialect).init().begin()
    for place in (LEFT, RIGHT):
        script.expect(script.write(place), f"it writes to {place}")
    schedule.hold(WriteTxnMarkersRequest, schedule.coordinator, leader)
    script.expect(script.end(committed=True), "the commit is acknowledged")
    schedule.until(lambda: schedule.is_stable(RIGHT), "one partition has its marker")
    schedule.kill(leader)
    schedule.until(lambda: schedule.leader_of(*LEFT) not in (leader, -1), "another node leads")
    schedule.until(lambda: schedule.is_stable(LEFT), "the other has its marker")
    schedule.expect(len(schedule.read_committed(LEFT)) == 1, "its record is read")
    schedule.finish()


def leader_moves_in_transaction(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """A partition's leader dies within a transaction: its successor knows the transaction, and takes in the rest."""
    schedule = TransactionSchedule(seed)
    leader = schedule.leader_of(*LEFT)
    script = Script(schedule, dialect).init().begin()
    script.expect(script.write(LEFT), "it writes")
    schedule.kill(leader)
    schedule.until(lambda: schedule.leader_of(*LEFT) not in (leader, -1), "another node leads")
    schedule.expect(schedule.read_committed(LEFT) == [], "nothing of an open transaction is read")
    script.expect(script.write(LEFT), "it goes on")
    script.expect(script.write(RIGHT), "it goes on elsewhere")
    script.expect(script.end(committed=False), "it aborts")
    schedule.until(lambda: schedule.is_stable(LEFT) and schedule.is_stable(RIGHT), "the markers are written")
    schedule.expect(schedule.read_committed(LEFT) == [], "nothing of it is read")
    script.begin()
    script.expect(script.write(LEFT), "it writes again")
    script.expect(script.end(committed=True), "it commits")
    schedule.finish()


def timed_out_producer(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """A producer is silent for longer than its time-out, and then goes on: all is refused, and nothing is read."""
    schedule = TransactionSchedule(seed)
    script = Script(schedule, dialect, timeout_ms=TIMEOUT_MS).init().begin()
    script.expect(script.write(LEFT), "it writes")
    schedule.until(lambda: schedule.is_stable(LEFT), "the transaction is aborted in time", within_ms=2 * TIMEOUT_MS)
    script.expect_refused(script.write(LEFT), "a late Produce")
    script.expect_refused(script.end(committed=True), "a late commit")
    schedule.expect(schedule.is_stable(LEFT), "no transaction is open")
    _commit_anew(schedule, dialect)
    schedule.finish()


def delayed_produce(seed: int = 1, dialect: Dialect = FIRST) -> None:
    """A Produce request arrives after its transaction has ended: it may not begin one that nobody ends (KIP-890)."""
    schedule = TransactionSchedule(seed)
    script = Script(schedule, dialect).init().begin()
    script.expect(script.write(RIGHT), "it writes")
    if not dialect.bumps:
        script.expect(script.add(LEFT), "the partition is added")
    late, hold = script.write_late(LEFT)
    schedule.wait(100)
    script.expect(script.end(committed=False), "it aborts")
    schedule.until(lambda: schedule.is_stable(RIGHT), "the markers are written")
    schedule.wait(200)
    schedule.links.release(hold)
    schedule.until(lambda: late.has_ended, "the late request is answered")
    schedule.expect(late.response is not None, "the late request is answered")
    script.expect_refused(ErrorCode(produced_codes(late.response)[0]), "it")
    schedule.expect(schedule.is_stable(LEFT), "no transaction is open")
    _commit_anew(schedule, dialect)
    schedule.finish()


def zombie_producer(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """Another instance takes over within a transaction: it is aborted, and the zombie can neither write nor commit."""
    schedule = TransactionSchedule(seed)
    zombie = Script(schedule, dialect).init().begin()
    zombie.expect(zombie.write(LEFT), "it writes")
    successor = Script(schedule, dialect, 2).init().begin()
    successor.expect(successor.write(LEFT), "the successor writes")
    zombie.expect_refused(zombie.write(LEFT), "the zombie's Produce")
    zombie.expect_refused(zombie.end(committed=True), "the zombie's commit")
    successor.expect(successor.end(committed=True), "the successor commits")
    schedule.until(lambda: schedule.is_stable(LEFT), "its marker is written")
    schedule.expect(len(schedule.read_committed(LEFT)) == 1, "only its record is read")
    schedule.finish()


def zombie_offset_commit(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """A zombie's late TxnOffsetCommit is refused: its offset never applies, and leaves the group's offsets stable."""
    schedule = TransactionSchedule(seed)
    zombie = Script(schedule, dialect).init().begin()
    zombie.expect(zombie.write(LEFT), "it writes")
    if not dialect.bumps:
        zombie.expect(zombie.add_offsets(), "it adds the group")
    successor = Script(schedule, dialect, 2).init().begin()
    zombie.expect_refused(zombie.commit_offset(RIGHT, 40), "the zombie's offset")
    schedule.expect(schedule.group_offset(RIGHT) == -1, "the group has no offset, and none is pending")
    successor.expect(successor.write(LEFT), "the successor writes")
    if not dialect.bumps:
        successor.expect(successor.add_offsets(), "the successor adds the group")
    successor.expect(successor.commit_offset(RIGHT, 4), "the successor adds an offset")
    schedule.expect(schedule.group_offset(RIGHT, is_stable=False) == -1, "it does not apply before the commit")
    successor.expect(successor.end(committed=True), "the successor commits")
    schedule.expect(schedule.group_offset(RIGHT) == 4, "the offset applies")
    schedule.finish()


def crash_after_aborts(seed: int = 1, dialect: Dialect = SECOND, *, power: bool = False) -> None:
    """All nodes die when aborted transactions lie in several segments: nothing of them is read afterwards.

    Where power fails, these segments lie behind the recovery point, and are not read again.
    """
    schedule = TransactionSchedule(seed, segment_ms=200, checkpoint_ms=300 if power else 60_000)
    script = Script(schedule, dialect).init()
    for is_committed in (False, False, True, False, True):
        script.begin()
        script.expect(script.write(LEFT), "it writes")
        script.expect(script.end(committed=is_committed), "it ends")
        schedule.until(lambda: schedule.is_stable(LEFT), "the marker is written")
        schedule.wait(500)
    schedule.wait(1000)
    schedule.kill(*schedule.nodes, power=power)
    schedule.start(*schedule.nodes)
    schedule.until(lambda: all(node.is_serving for node in schedule.nodes.values()), "all serve again")
    schedule.until(lambda: schedule.is_stable(LEFT), "the partition is led again")
    schedule.expect(len(schedule.read_committed(LEFT)) == 2, "what is committed is read")
    schedule.finish()


def power_cut_after_aborts(seed: int = 1, dialect: Dialect = SECOND) -> None:
    crash_after_aborts(seed, dialect, power=True)


def aborted_offsets(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """Offsets of a transaction that is aborted never apply, whichever node coordinates the group."""
    schedule = TransactionSchedule(seed)
    script = Script(schedule, dialect).init().begin()
    if not dialect.bumps:
        script.expect(script.add_offsets(), "it adds the group")
    script.expect(script.commit_offset(RIGHT, 7), "it adds an offset")
    coordinator = schedule.group_coordinator
    schedule.kill(coordinator)
    schedule.until(lambda: schedule.group_coordinator not in (coordinator, -1), "another node coordinates the group")
    schedule.expect(schedule.group_offset(RIGHT, is_stable=False) == -1, "it does not apply before the commit")
    script.expect(script.end(committed=False), "it aborts")
    schedule.expect(schedule.group_offset(RIGHT) == -1, "it does not apply")
    schedule.finish()


def prompt_markers(seed: int = 1, dialect: Dialect = SECOND) -> None:
    """Markers of a coordinator that also leads the partition do not wait for the end of its followers' long poll."""
    schedule = TransactionSchedule(seed)
    beside = ("beside", 0)
    others = [node_id for node_id in schedule.nodes if node_id != schedule.coordinator]
    schedule.create_topic(beside[0], [schedule.coordinator, *others])
    schedule.topics.append((beside[0], 1))
    schedule.until(lambda: schedule.leader_of(*beside) == schedule.coordinator, "the coordinator leads the partition")
    schedule.wait(2000)
    for number in range(5):
        began_ms = schedule.scheduler.now_ms
        script = Script(schedule, dialect, number).init().begin()
        script.expect(script.write(beside), f"it writes to {beside}")
        script.expect(script.end(committed=True), "it commits")
        schedule.until(lambda: schedule.is_stable(beside), "the marker is committed")
        schedule.expect(schedule.scheduler.now_ms - began_ms < LONG_POLL_MS, "nothing has waited for a long poll")
