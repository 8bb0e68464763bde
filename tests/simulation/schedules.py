"""Histories from the literature, and others that chance rarely meets, played with whole nodes.

Each function is one history. It raises Violation where the cluster breaks a promise, and ends with everything healed
and at rest. ``cluster_mutants`` names the bugs that some of them are there to find.
"""

from __future__ import annotations

from barnabas.core.raft.machine import Role
from barnabas.model.errors import ErrorCode
from barnabas.node.broker_lifecycle import Phase
from barnabas.sim.disk import Fault
from barnabas.sim.faults import add_voter
from barnabas.sim.schedule import TOPIC, Schedule
from barnabas.wire.api.alter_partition import AlterPartitionRequest
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest
from barnabas.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.api.fetch import FetchRequest
from barnabas.wire.api.remove_raft_voter import RemoveRaftVoterRequest

BROKERS = "PLAINTEXT"

# The quorum


def figure_8(seed: int = 1) -> None:
    """Raft paper, figure 8: a record of an old epoch on a majority is not committed by that, and may be overwritten."""
    schedule = Schedule(seed, 5, settings={"controller.quorum.fetch.max.bytes": "1"})  # one batch a fetch
    first = schedule.controller
    second, third, fourth, fifth = (node for node in schedule.nodes if node != first)
    for node in (first, second):
        schedule.isolate(node, third, fourth, fifth)
    start = schedule.log_end(first)
    schedule.create_topic("contested", [third, fourth, fifth], first)
    schedule.until(lambda: schedule.log_end(second) > start, "the second node has the contested record")
    contested = schedule.log_end(second)
    schedule.kill(first, second)

    schedule.until(
        lambda: any(schedule.raft(node).is_leading for node in (third, fourth, fifth)), "one of the others leads"
    )
    usurper = next(node for node in (third, fourth, fifth) if schedule.raft(node).is_leading)
    voters = [node for node in (third, fourth, fifth) if node != usurper]
    schedule.kill(usurper)  # before anybody has its first record

    schedule.links.heal()
    schedule.start(first, second)
    schedule.until(
        lambda: any(_has_fetched_from(schedule, voter, contested) for voter in voters), "a third node has the record"
    )
    is_committed = any("contested" in schedule.image(node).topics for node in (first, second))
    schedule.kill(first, second)
    schedule.start(usurper)
    schedule.until(lambda: schedule.controller in (usurper, *voters), "the usurper leads again")
    schedule.finish()
    schedule.expect("contested" in schedule.image().topics or not is_committed, "a committed topic stays")


def _has_fetched_from(schedule: Schedule, voter: int, offset: int) -> bool:
    """Whether a leader knows that the voter holds the log up to there."""
    leaders = [schedule.raft(node) for node, each in schedule.nodes.items() if each.node is not None]
    return any(
        progress.replica.node_id == voter and progress.end_offset >= offset
        for raft in leaders
        for progress in raft.progress
    )


def double_vote(seed: int = 1, *, power: bool = True) -> None:
    """A voter that crashes after its vote must not vote for another candidate of the same epoch."""
    schedule = Schedule(seed, 5)
    others = [node for node in schedule.nodes if node != schedule.controller]
    schedule.kill(schedule.controller)
    rival = _await_role(schedule, others, Role.CANDIDATE)
    schedule.isolate(rival)  # it stands in the next epoch, and nobody hears of it
    others.remove(rival)
    elected = _await_role(schedule, others, Role.LEADER)
    raft_epoch = schedule.raft(elected).raft_epoch
    others.remove(elected)
    schedule.isolate(elected)
    for voter in others:  # one after the other: a candidate that reaches too few gives up
        schedule.kill(voter, power=power)  # it has voted, and has nothing of the new leader's log
        schedule.start(voter)
        schedule.rejoin(voter)
        schedule.isolate(elected)
        schedule.wait(150)
    _await_role(schedule, [rival, *others], Role.LEADER)
    again = max(schedule.raft(node).raft_epoch for node in (rival, *others))
    schedule.expect(again > raft_epoch, f"an epoch after {raft_epoch}")
    schedule.finish()


def _await_role(schedule: Schedule, nodes: list[int], role: Role) -> int:
    def found() -> list[int]:
        return [node for node in nodes if schedule.raft(node).role is role]

    schedule.until(lambda: bool(found()), f"one of {nodes} is {role.value}")
    return found()[0]


def zombie_controller(seed: int = 1) -> None:
    """A controller that a majority does not hear resigns by itself, and answers nothing meanwhile."""
    schedule = Schedule(seed, 3)
    zombie = schedule.controller
    schedule.isolate(zombie)
    answer = schedule.create_topic("unheard", list(schedule.nodes), zombie)
    schedule.until(lambda: schedule.controller not in (zombie, -1), "another controller is active")
    schedule.until(lambda: not schedule.raft(zombie).is_leading, "the old controller resigns", within_ms=5000)
    schedule.wait(3000)
    created = answer.response is not None and answer.response.topics[0].error_code == ErrorCode.NONE
    schedule.expect(not created, "no topic is created by a controller that is cut off")
    schedule.finish()
    schedule.expect("unheard" not in schedule.image().topics or not created, "the topic was never acknowledged")


def unsynced_voters(seed: int = 1) -> None:
    """Voters whose disks hang do not count for a commit: what they have may be lost with their power."""
    schedule = Schedule(seed, 3)
    leader = schedule.controller
    voters = [node for node in schedule.nodes if node != leader]
    for voter in voters:
        schedule.nodes[voter].disk.stick("__cluster_metadata-0")
    answer = schedule.create_topic("acknowledged", list(schedule.nodes), leader)
    schedule.wait(1000)
    is_created = answer.response is not None and answer.response.topics[0].error_code == ErrorCode.NONE
    schedule.kill(leader)
    schedule.kill(*voters, power=True)
    for voter in voters:
        schedule.nodes[voter].heal()
    schedule.start(*voters)
    schedule.until(lambda: schedule.controller in voters, "the voters elect")
    schedule.finish()
    schedule.expect("acknowledged" in schedule.image().topics or not is_created, "a created topic stays")


def pending_removal(seed: int = 1) -> None:
    """A leader that is removed while the last other voter is cut off has to be elected once more to commit that."""
    schedule = Schedule(seed, 3)
    leader = schedule.controller
    other, removed = (node for node in schedule.nodes if node != leader)
    _remove_voter(schedule, leader, removed)
    schedule.until(lambda: len(schedule.raft(other).voters) == 2, "one voter is removed")
    schedule.wait(300)
    schedule.isolate(other)
    _remove_voter(schedule, leader, leader)
    schedule.until(lambda: len(schedule.raft(leader).voters) == 1, "the leader has the record of its removal")
    schedule.until(lambda: not schedule.raft(leader).is_leading, "it resigns, unheard")
    schedule.rejoin(other)
    schedule.until(lambda: schedule.controller == other, "the last voter leads")
    schedule.finish()


def _remove_voter(schedule: Schedule, controller: int, voter: int) -> None:
    node, broker = schedule.nodes[voter], schedule.nodes[controller].node
    assert broker is not None, "it is up"
    broker.broker.to_controller(
        RemoveRaftVoterRequest(node.cluster_id, node.node_id, node.directory_id), lambda _: None
    )


def voter_added_while_leader_dies(seed: int = 1) -> None:
    """The addition of a voter is undone or done with the leader that made it, and may be asked for again."""
    schedule = Schedule(seed, 3)
    leader = schedule.controller
    voter = next(node for node in schedule.nodes if node != leader)
    _remove_voter(schedule, leader, voter)
    schedule.until(lambda: len(schedule.raft(leader).voters) == 2, "one voter is removed")
    schedule.wait(500)
    broker = schedule.nodes[leader].node
    assert broker is not None, "it is up"
    broker.broker.to_controller(add_voter(schedule.nodes[voter]), lambda _: None)
    schedule.until(lambda: len(schedule.raft(leader).voters) == 3, "the leader has the record of the addition")
    schedule.kill(leader)
    schedule.wait(4000)
    schedule.finish()


def registration_after_voter_change(seed: int = 1) -> None:
    """A broker that registers right behind a change of the voters serves only when it has read its registration."""
    schedule = Schedule(seed, 3)
    late, voter, controller = schedule.replicas
    schedule.kill(late)
    schedule.until(lambda: schedule.image().brokers[late].fenced, "it is fenced")
    registrations = schedule.hold(BrokerRegistrationRequest, late, controller)
    schedule.start(late)
    schedule.until(lambda: schedule.phase(late) is Phase.REGISTERING, "it asks to be registered")
    _remove_voter(schedule, controller, voter)
    schedule.until(lambda: len(schedule.raft(controller).voters) == 2, "one voter is removed")
    schedule.links.release(registrations)
    schedule.until(lambda: schedule.up(late).is_serving, "it serves")
    schedule.finish()


def interrupted_snapshot(seed: int = 1) -> None:
    """A node that fetches a metadata snapshot dies half-way, and goes on or begins anew, never with half of it."""
    settings = {
        "controller.quorum.fetch.snapshot.max.bytes": "150",
        "metadata.log.max.record.bytes.between.snapshots": "300",
    }
    schedule = Schedule(seed, 3, settings=settings)
    late = next(node for node in schedule.nodes if node != schedule.controller)
    others = [node for node in schedule.nodes if node != late]
    schedule.kill(late)
    for number in range(6):
        answer = schedule.create_topic(f"more-{number}", others, others[0])
        schedule.until(lambda answer=answer: answer.has_ended, "the topic is created")  # type: ignore[misc]
    schedule.wait(3000)
    schedule.start(late)
    schedule.until(lambda: _fetched_part(schedule, late) > 0, "it has a part of the snapshot")
    schedule.kill(late, power=True)
    schedule.start(late)
    schedule.until(lambda: schedule.up(late).is_serving, "it serves")
    schedule.expect(schedule.image(late).topics.keys() >= {f"more-{number}" for number in range(6)}, "all topics")
    schedule.finish()


def _fetched_part(schedule: Schedule, node_id: int) -> int:
    disk, folder = schedule.nodes[node_id].disk, "/data/__cluster_metadata-0"
    parts = [name for name in disk.list(folder) if name.endswith(".part")]
    return max((disk.open(f"{folder}/{name}").size() for name in parts), default=0)


def deletion_over_failover(seed: int = 1) -> None:
    """The controller dies in the middle of a topic's deletion: it is deleted everywhere, or nowhere, and for good."""
    schedule = Schedule(seed, 3)
    leader, follower, controller = schedule.replicas
    schedule.produce_all(leader, "a", "b")
    end = schedule.log_end(controller)
    topic_id = schedule.image().topics[TOPIC].topic_id
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=3000)
    schedule.ask(request, 6, controller)
    schedule.until(lambda: schedule.log_end(controller) > end, "the controller has the record of the deletion")
    schedule.kill(controller)
    schedule.until(lambda: schedule.controller in (leader, follower), "another controller is active")
    answer = schedule.ask(request, 6, schedule.controller)
    schedule.until(lambda: answer.has_ended, "the deletion is answered")
    codes = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
    schedule.expect(answer.response is not None and answer.response.responses[0].error_code in codes, "it is deleted")
    schedule.history.last_acknowledged.clear()
    schedule.history.acknowledged.clear()
    schedule.start(controller)
    schedule.until(
        lambda: all(TOPIC not in schedule.image(node).topics for node in schedule.nodes), "every node knows of it"
    )
    schedule.create_topic(TOPIC, [leader, follower, controller])
    schedule.until(lambda: TOPIC in schedule.image().topics, "there is a new topic of that name")
    schedule.until(lambda: schedule.read(schedule.leader) == [], "the new topic is empty")
    schedule.finish()


def full_disk_of_the_controller(seed: int = 1) -> None:
    """A node that starts while the active controller cannot write waits for it, and does not give up."""
    schedule = Schedule(seed, 3)
    late, _, controller = schedule.replicas
    schedule.kill(late)
    schedule.start(late)
    for _ in range(100):
        if schedule.nodes[controller].node is not None:
            schedule.nodes[controller].disk.fail_next_of("write", Fault.ENOSPC)
        schedule.wait(20)
    schedule.finish()


# Partitions


def divergent_tails(seed: int = 1, *, power: bool = True) -> None:
    """A leader dies with records that nobody else has; what it kept of them is cut when it follows another."""
    schedule = Schedule(seed, 3)
    first, second, third = schedule.replicas
    schedule.produce_all(first, "a", "b")
    schedule.isolate(first)
    lost = [schedule.produce(first, f"lost-{number}") for number in range(4)]
    schedule.until(lambda: schedule.replica(first).log_end_offset == 6, "the old leader has a tail of its own")
    schedule.until(lambda: schedule.leader != first, "another replica leads")
    schedule.kill(first, power=power)
    schedule.produce_all(schedule.leader, "c", "d")
    schedule.kill(second, third, power=power)
    schedule.links.heal()
    schedule.start(first)
    schedule.wait(1000)
    schedule.start(second, third)
    schedule.until(lambda: schedule.leader in (second, third), "a replica of the in-sync set leads")
    schedule.expect(not any(answer.is_acknowledged for answer in lost), "what was lost was not acknowledged")
    schedule.until(lambda: schedule.in_sync == {first, second, third}, "all are in sync")
    schedule.produce_all(schedule.leader, "e")
    schedule.finish()
    schedule.expect(schedule.read(schedule.leader) == ["a", "b", "c", "d", "e"], "nothing else is in the log")


def zombie_leader(seed: int = 1) -> None:
    """A leader that is paused until another leads neither acknowledges nor serves anything when it comes back."""
    schedule = Schedule(seed, 3)
    zombie, _, _ = schedule.replicas
    schedule.produce_all(zombie, "a")
    schedule.pause(zombie, 5000)
    late = schedule.produce(zombie, "late")  # it waits in the zombie's socket
    schedule.until(lambda: schedule.leader not in (zombie, -1), "another replica leads")
    schedule.produce_all(schedule.leader, "b")
    schedule.isolate(zombie)
    schedule.wait(6000)  # it runs again, cut off from the others
    seen = schedule.read(zombie)
    schedule.expect(seen is None, f"the zombie, whose lease is over, serves nothing, not {seen}")
    stale = schedule.produce(zombie, "stale")
    schedule.until(lambda: stale.has_ended, "the zombie answers, or not")
    schedule.expect(not stale.is_acknowledged and not late.is_acknowledged, "the zombie acknowledges nothing")
    schedule.finish()
    log = schedule.read(schedule.leader) or []
    schedule.expect(log[:2] == ["a", "b"], f"what was acknowledged comes first: {log}")


def lagging_follower(seed: int = 1) -> None:
    """A follower that lags leaves the in-sync set, and is in it again only with all that is acknowledged."""
    schedule = Schedule(seed, 3)
    leader, lagging, controller = schedule.replicas
    fetches = schedule.hold(FetchRequest, lagging, leader, listener=BROKERS)
    schedule.until(lambda: schedule.in_sync == {leader, controller}, "the follower leaves the in-sync set")
    schedule.produce_all(leader, *(f"m{number}" for number in range(20)))
    schedule.links.release(fetches)
    schedule.until(lambda: lagging in schedule.in_sync, "it is in sync again")
    schedule.expect(schedule.replica(lagging).log_end_offset == 20, "it holds all that is acknowledged")
    schedule.kill(leader, controller)
    schedule.start(controller)
    schedule.until(lambda: schedule.leader in (lagging, controller), "it may lead")
    schedule.finish()


def unanswered_proposal(seed: int = 1) -> None:
    """A leader goes on without a follower only when the controller has agreed."""
    schedule = Schedule(seed, 3)
    leader, lagging, controller = schedule.replicas
    schedule.produce_all(leader, "a")
    schedule.hold(FetchRequest, lagging, leader, listener=BROKERS)
    proposals = schedule.hold(AlterPartitionRequest, leader, controller)
    answer = schedule.produce(leader, "b")
    schedule.wait(2000)
    late = schedule.produce(leader, "c")
    schedule.wait(4500)
    schedule.expect(not answer.is_acknowledged and not late.is_acknowledged, "a replica in sync lacks the records")
    schedule.links.release(proposals)
    schedule.until(lambda: schedule.in_sync == {leader, controller}, "the controller agrees")
    schedule.produce_all(leader, "d")
    schedule.finish()


def no_unclean_election(seed: int = 1) -> None:
    """When all in-sync replicas are gone, one that lacks records does not lead."""
    schedule = Schedule(seed, 5)
    leader, lagging, controller = schedule.replicas
    fetches = schedule.hold(FetchRequest, lagging, leader, listener=BROKERS)
    schedule.until(lambda: schedule.in_sync == {leader, controller}, "the follower leaves the in-sync set")
    schedule.produce_all(leader, "a", "b", "c")
    schedule.kill(leader, controller)
    schedule.links.release(fetches)
    schedule.until(lambda: schedule.controller not in (-1, controller), "there is another controller")
    schedule.wait(6000)
    schedule.expect(schedule.leader != lagging, "a replica without the records does not lead")
    schedule.start(leader, controller)
    schedule.until(lambda: schedule.leader in (leader, controller), "one of the in-sync set leads")
    schedule.finish()


def too_few_in_sync(seed: int = 1) -> None:
    """A leader that is alone in sync acknowledges nothing, and shows nothing that is on no other replica."""
    schedule = Schedule(seed, 3)
    leader, follower, controller = schedule.replicas
    schedule.produce_all(leader, "a")
    schedule.hold(FetchRequest, follower, leader, listener=BROKERS)
    schedule.hold(FetchRequest, controller, leader, listener=BROKERS)
    pending = schedule.produce(leader, "pending")  # appended while two are in sync
    schedule.until(lambda: schedule.replica(leader).in_sync_count == 1, "the leader knows that it is alone in sync")
    refused = schedule.produce(leader, "refused")
    schedule.until(lambda: refused.has_ended and pending.has_ended, "both are answered")
    schedule.expect(refused.code is ErrorCode.NOT_ENOUGH_REPLICAS, f"it is refused, not {refused.code.name}")
    schedule.expect(not pending.is_acknowledged, "what was pending is not acknowledged")
    schedule.expect(schedule.read(leader) == ["a"], "nothing more is visible")
    schedule.kill(leader)
    schedule.until(lambda: schedule.leader in (follower, controller), "an eligible replica leads")
    schedule.finish()


def unflushed_followers(seed: int = 1) -> None:
    """Followers whose disks hang do not count for acks=all where the topic is flushed at every message."""
    schedule = Schedule(seed, 5)
    leader, *followers = schedule.replicas
    schedule.produce_all(leader, "a")
    for follower in followers:
        schedule.nodes[follower].disk.stick(f"{TOPIC}-0")
    schedule.produce(leader, "b")
    schedule.wait(1500)
    schedule.kill(leader)
    schedule.until(lambda: schedule.leader in followers, "a follower leads")
    schedule.kill(*followers, power=True)
    for follower in followers:
        schedule.nodes[follower].heal()
    schedule.start(*followers)
    schedule.until(lambda: schedule.leader in followers, "a follower leads after the power cut")
    schedule.finish()


def delayed_alter_partition(seed: int = 1) -> None:
    """A leader's request for other in-sync replicas arrives after another leads: it is refused by its epochs."""
    schedule = Schedule(seed, 3)
    leader, follower, controller = schedule.replicas
    schedule.produce_all(leader, "a")
    schedule.hold(FetchRequest, controller, leader, listener=BROKERS)
    proposal = schedule.hold(AlterPartitionRequest, leader, controller)
    schedule.produce(leader, "pending")
    schedule.until(lambda: schedule.replica(leader).leader.proposal is not None, "it proposes to go on without one")
    schedule.wait(10)
    schedule.pause(leader, 4000)
    schedule.until(lambda: schedule.leader not in (leader, -1), "another replica leads")
    schedule.links.heal()
    proposal = schedule.hold(AlterPartitionRequest, leader, controller)
    schedule.hold(FetchRequest, leader, follower, listener=BROKERS)
    schedule.hold(FetchRequest, leader, controller, listener=BROKERS)
    schedule.until(lambda: schedule.in_sync == {follower, controller}, "the others are in sync")
    schedule.produce_all(schedule.leader, "b", "c")
    schedule.until(lambda: not schedule.image().brokers[leader].fenced, "the old leader is back")
    schedule.links.release(proposal)
    schedule.wait(1000)
    schedule.expect(leader not in schedule.in_sync, "the old leader is not in sync")
    schedule.finish()


def restarted_replica(seed: int = 1) -> None:
    """KIP-903: a replica that restarts without its records is not taken into the in-sync set for its former self."""
    schedule = Schedule(seed, 3, is_durable=False)
    leader, follower, controller = schedule.replicas
    fetches = schedule.hold(FetchRequest, follower, leader, listener=BROKERS)
    schedule.until(lambda: schedule.in_sync == {leader, controller}, "the follower leaves the in-sync set")
    schedule.produce_all(leader, "a", "b", "c", "d")
    proposals = schedule.hold(AlterPartitionRequest, leader, controller)
    schedule.links.release(fetches)
    schedule.until(lambda: schedule.replica(leader).leader.proposal is not None, "the leader proposes to add it")
    schedule.kill(follower, power=True)
    schedule.hold(FetchRequest, follower, leader, listener=BROKERS)
    schedule.start(follower)
    schedule.until(lambda: schedule.up(follower).is_serving, "the follower is back, perhaps without its records")
    schedule.links.release(proposals)
    schedule.wait(1000)
    held = schedule.replica(follower).log_end_offset
    schedule.expect(held == 4 or follower not in schedule.in_sync, f"with {held} of 4 records it is not in sync")
    schedule.finish()
