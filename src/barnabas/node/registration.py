"""The registration requests that a node sends to the controller when it starts."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.metadata.features import KNOWN_RANGES
from barnabas.core.metadata.image import Endpoint
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.ids import Uuid
from barnabas.wire.api import broker_registration, controller_registration


def of_controller(
    settings: BrokerSettings, incarnation_id: Uuid, endpoint: tuple[str, str, int]
) -> controller_registration.ControllerRegistrationRequest:
    name, host, port = endpoint
    return controller_registration.ControllerRegistrationRequest(
        controller_id=settings.id,
        incarnation_id=incarnation_id,
        listeners=[controller_registration.Listener(name=name, host=host, port=port)],
        features=[
            controller_registration.Feature(name=feature, min_supported_version=low, max_supported_version=high)
            for feature, (low, high) in sorted(KNOWN_RANGES.items())
        ],
    )


def of_broker(
    settings: BrokerSettings,
    incarnation_id: Uuid,
    *,
    cluster_id: str,
    endpoints: Sequence[Endpoint],
    directory_ids: Sequence[Uuid],
    previous_epoch: int,
) -> broker_registration.BrokerRegistrationRequest:
    """``previous_epoch`` is that of a clean stop, -1 where there was none: replicas may have lost records then."""
    return broker_registration.BrokerRegistrationRequest(
        broker_id=settings.id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        listeners=[
            broker_registration.Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in endpoints
        ],
        features=[
            broker_registration.Feature(name=feature, min_supported_version=low, max_supported_version=high)
            for feature, (low, high) in KNOWN_RANGES.items()
        ],
        rack=settings.broker_rack,
        log_dirs=list(directory_ids),
        previous_broker_epoch=previous_epoch,
    )
