"""What both clients make their channels and calls with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from attention_client import _messages
from attention_client.info import ServerInfo

ATTEND = "/attention.v1.AttentionService/Attend"
ATTEND_STREAM = "/attention.v1.AttentionService/AttendStream"
INFO = "/attention.v1.AttentionService/GetServerInfo"
HEALTH = "/grpc.health.v1.Health/Check"

TIMEOUT = 60.0  # seconds
IN_FLIGHT = 16  # of attend_many; the server's own limit is 32 unless configured

# The same as the C++ library's: a request may be computed twice without harm.
_RETRIES = {
    "methodConfig": [
        {
            "name": [
                {"service": "attention.v1.AttentionService"},
                {"service": "grpc.health.v1.Health"},
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.service_config", json.dumps(_RETRIES)),
    # A larger message is not sent again; gRPC's default is 256 KiB.
    ("grpc.per_rpc_retry_buffer_size", 256 << 20),
    # A connection that a network has dropped is noticed while calls wait on it.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]

_HealthCheckRequest = _messages.message("grpc.health.v1.HealthCheckRequest")
_HealthCheckResponse = _messages.message("grpc.health.v1.HealthCheckResponse")
_GetServerInfoResponse = _messages.message("attention.v1.GetServerInfoResponse")


def channel_options(options: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The defaults with the caller's in their place."""
    return list((dict(_OPTIONS) | dict(options)).items())


def health_request(service: str) -> bytes:
    data: bytes = _HealthCheckRequest(service=service).SerializeToString()
    return data


def read_health(data: bytes) -> str:
    response = _HealthCheckResponse.FromString(data)
    status = _HealthCheckResponse.ServingStatus.Name(response.status)
    return str(status)


def read_info(data: bytes) -> ServerInfo:
    return ServerInfo.of(_GetServerInfoResponse.FromString(data))
