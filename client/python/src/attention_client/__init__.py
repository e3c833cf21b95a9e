"""Attention as a library: the client of the attention service.

    from attention_client import Client, LocalServer

    with LocalServer() as server, Client(server.target) as client:
        result = client.attend(query, key, value, causal=True, weights=True)

docs/python.md of the project shows every call.
"""

import importlib.metadata

from attention_client._merge import merge
from attention_client._options import Options, Request
from attention_client._quantize import quantize
from attention_client._reply import Result
from attention_client._tls import Tls
from attention_client.aio import AsyncClient
from attention_client.aio_sequence import AsyncSequence
from attention_client.backend import AttentionBackend
from attention_client.client import Client
from attention_client.errors import (
    AbortedError,
    AlreadyExistsError,
    AttentionError,
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    KeysLostError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    SequenceLostError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from attention_client.info import SequenceDescription, SequenceForm, ServerInfo
from attention_client.scoring import (
    Additive,
    Bilinear,
    Gaussian,
    ParameterSet,
    ScaledDotProduct,
    Scoring,
)
from attention_client.sequence import Sequence
from attention_client.server import LocalServer

try:
    __version__ = importlib.metadata.version("attention-client")
except importlib.metadata.PackageNotFoundError:  # sources that are not installed
    __version__ = "0+unknown"

__all__ = [
    "AbortedError",
    "Additive",
    "AlreadyExistsError",
    "AsyncClient",
    "AsyncSequence",
    "AttentionBackend",
    "AttentionError",
    "Bilinear",
    "CancelledError",
    "Client",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "Gaussian",
    "InvalidArgumentError",
    "KeysLostError",
    "LocalServer",
    "NotFoundError",
    "Options",
    "OutOfRangeError",
    "ParameterSet",
    "PermissionDeniedError",
    "Request",
    "ResourceExhaustedError",
    "Result",
    "ScaledDotProduct",
    "Scoring",
    "Sequence",
    "SequenceDescription",
    "SequenceForm",
    "SequenceLostError",
    "ServerInfo",
    "Tls",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "__version__",
    "merge",
    "quantize",
]
