"""The response to a request that failed as a whole: the error code where clients of that API look for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError
from barnabas.wire import catalogue
from barnabas.wire.schema import Message


def refusal_of(request: Message, problem: ApiError) -> Message:
    """For what the controller decides; where a response has no list of outcomes, its own error code says it."""
    _, response = catalogue.api_classes(request.api_key)
    make = _BY_KEY.get(request.api_key)
    return response(error_code=problem.code) if make is None else make(request, problem)


def _create_topics(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse  # noqa: PLC0415 -- rarely

    code, reason = problem.code, problem.message
    results = [CreatableTopicResult(name=topic.name, error_code=code, error_message=reason) for topic in request.topics]
    return CreateTopicsResponse(topics=results)


def _delete_topics(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsResponse  # noqa: PLC0415

    code, reason = problem.code, problem.message
    names = [*request.topic_names, *(state.name for state in request.topics)]
    results = [DeletableTopicResult(name=name, error_code=code, error_message=reason) for name in names]
    return DeleteTopicsResponse(responses=results)


def _create_partitions(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api.create_partitions import (  # noqa: PLC0415
        CreatePartitionsResponse,
        CreatePartitionsTopicResult,
    )

    code, reason = problem.code, problem.message
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=reason) for topic in request.topics
    ]
    return CreatePartitionsResponse(results=results)


def _alter_configs(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse  # noqa: PLC0415

    code, reason = problem.code, problem.message
    resources = [(each.resource_type, each.resource_name) for each in request.resources]
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(code, reason, kind, name) for kind, name in resources]
    )


def _alter_configs_incrementally(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api import incremental_alter_configs as api  # noqa: PLC0415

    code, reason = problem.code, problem.message
    resources = [(each.resource_type, each.resource_name) for each in request.resources]
    return api.IncrementalAlterConfigsResponse(
        responses=[api.AlterConfigsResourceResponse(code, reason, kind, name) for kind, name in resources]
    )


def _elect_leaders(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api import elect_leaders as api  # noqa: PLC0415

    code, reason = problem.code, problem.message
    results = [
        api.ReplicaElectionResult(each.topic, [api.PartitionResult(number, code, reason) for number in each.partitions])
        for each in request.topic_partitions or ()
    ]
    return api.ElectLeadersResponse(error_code=code, replica_election_results=results)


def _reassign(request: Any, problem: ApiError) -> Message:
    from barnabas.wire.api import alter_partition_reassignments as api  # noqa: PLC0415

    code, reason = problem.code, problem.message
    responses = [
        api.ReassignableTopicResponse(
            each.name,
            [api.ReassignablePartitionResponse(wanted.partition_index, code, reason) for wanted in each.partitions],
        )
        for each in request.topics
    ]
    return api.AlterPartitionReassignmentsResponse(error_code=code, error_message=reason, responses=responses)


_BY_KEY: dict[int, Callable[[Any, ApiError], Message]] = {
    19: _create_topics,
    20: _delete_topics,
    33: _alter_configs,
    37: _create_partitions,
    43: _elect_leaders,
    44: _alter_configs_incrementally,
    45: _reassign,
}
