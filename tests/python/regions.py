"""Regions of shared memory, for its tests."""

from pathlib import Path

import grpc

from attention_client import _messages

REGIONS = "/inference.GRPCInferenceService/SystemSharedMemoryStatus"


def regions(target):
    """The names of the regions that the server knows."""
    response = _messages.message("inference.SystemSharedMemoryStatusResponse")
    with grpc.insecure_channel(target) as channel:
        return set(response.FromString(channel.unary_unary(REGIONS)(b"")).regions)


def files(client):
    return list(Path("/dev/shm").glob(f"attention-{client._pool.word}-*"))
