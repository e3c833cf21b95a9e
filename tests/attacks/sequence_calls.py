"""What the tests of sequences share."""

import grpc
import numpy as np
from grpc import StatusCode
from sequences import Sequences

MIB = 1 << 20
HUGE = 1 << 62
REFUSED = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.OUT_OF_RANGE,
    StatusCode.RESOURCE_EXHAUSTED,
}


def caller(channel, token):
    return Sequences(channel, metadata=[("authorization", f"Bearer {token}")])


def code_of(call, *arguments, **fields):
    """And what the error says."""
    try:
        call(*arguments, **fields)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return StatusCode.OK, ""


def rows(count, width=4, value=1.0):
    key = np.full((1, count, width), value)
    return key, key
