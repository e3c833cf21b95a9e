"""Calls the attention service from plain gRPC, with nothing but generated stubs.

examples/python/run makes the stubs and runs this file. It sends one request,
compares the answer with NumPy, and then shows the error that a wrong request gets.
"""

import argparse
import sys

import grpc
import numpy as np

from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc

MESSAGE_LIMIT = 256 << 20  # bytes each way: the server's default


def to_tensor(array: np.ndarray) -> pb.Tensor:
    """The wire's tensor: row-major, little-endian, here always FP32."""
    array = np.ascontiguousarray(array, dtype="<f4")
    return pb.Tensor(
        datatype=pb.DATA_TYPE_FP32, shape=array.shape, data=array.tobytes()
    )


def to_lengths(lengths: list[int]) -> pb.Tensor:
    """valid_lens: how many keys of each batch entry take part."""
    array = np.array(lengths, dtype="<i4")
    return pb.Tensor(
        datatype=pb.DATA_TYPE_INT32, shape=array.shape, data=array.tobytes()
    )


def to_array(tensor: pb.Tensor) -> np.ndarray:
    """A view of an FP32 tensor's bytes."""
    return np.frombuffer(tensor.data, dtype="<f4").reshape(tensor.shape)


def expected(query, key, value, lengths):
    """softmax(q k^T / sqrt(d)) v in FP64, keys beyond the length left out."""
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
    for entry, length in enumerate(lengths):
        scores[entry, :, length:] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights @ value, weights


def call(stub: rpc.AttentionServiceStub) -> bool:
    """One good request; whether its answer is NumPy's."""
    random = np.random.default_rng(seed=1)
    query = random.normal(size=(2, 1, 4))  # (batch, queries, width)
    key = random.normal(size=(2, 10, 4))
    value = random.normal(size=(2, 10, 3))
    lengths = [2, 6]
    reply = stub.Attend(
        pb.AttendRequest(
            query=to_tensor(query),
            key_value=pb.KeyValueTensors(key=to_tensor(key), value=to_tensor(value)),
            valid_lens=to_lengths(lengths),
            return_weights=True,
        ),
        timeout=30,  # seconds; the server stops computing when it passes
    )
    output, weights = to_array(reply.output), to_array(reply.weights)
    print(f"backend {reply.backend}, kernel {reply.kernel}")
    print(f"computed in {reply.compute_ns / 1e6:.3f} ms")
    print(f"output {output.shape}:\n{output}")
    print(f"weights {weights.shape}:\n{weights.round(3)}")

    # The server read FP32: compare with what FP64 makes of the same numbers.
    arrays = (a.astype("f4").astype("f8") for a in (query, key, value))
    want_output, want_weights = expected(*arrays, lengths)
    difference = max(
        np.abs(output - want_output).max(), np.abs(weights - want_weights).max()
    )
    print(f"largest difference from NumPy: {difference:.1e}")
    return bool(difference < 1e-6)


def call_wrongly(stub: rpc.AttentionServiceStub) -> bool:
    """A key that is wider than the query; whether the server says so."""
    try:
        stub.Attend(
            pb.AttendRequest(
                query=to_tensor(np.zeros((1, 4))),
                key_value=pb.KeyValueTensors(
                    key=to_tensor(np.zeros((3, 5))),
                    value=to_tensor(np.zeros((3, 2))),
                ),
            ),
            timeout=30,
        )
    except grpc.RpcError as error:
        # INVALID_ARGUMENT: mend the request. UNAVAILABLE: try again later.
        print(f"wrong request: {error.code().name}: {error.details()}")
        return error.code() == grpc.StatusCode.INVALID_ARGUMENT
    print("a wrong request was answered", file=sys.stderr)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="127.0.0.1:8001", metavar="HOST:PORT")
    options = [
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ]
    server = parser.parse_args().server
    with grpc.insecure_channel(server, options=options) as channel:
        stub = rpc.AttentionServiceStub(channel)
        try:
            return 0 if call(stub) and call_wrongly(stub) else 1
        except grpc.RpcError as error:
            print(f"{server}: {error.code().name}: {error.details()}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
