"""Callers of the service: single calls that are checked, and a load of them."""

import json
import threading
import time
from collections import Counter

import grpc
import numpy as np
import oracle
from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc
from inference import grpc_service_pb2 as oip
from inference import grpc_service_pb2_grpc as oip_rpc

# What docs/operations/access.md tells callers to use, and what the C++ library uses.
RETRIES = json.dumps(
    {
        "methodConfig": [
            {
                "name": [
                    {"service": "attention.v1.AttentionService"},
                    {"service": "inference.GRPCInferenceService"},
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
)
OPTIONS = [
    ("grpc.service_config", RETRIES),
    ("grpc.max_receive_message_length", 256 << 20),
    # A connection of its own for each channel.
    ("grpc.use_local_subchannel_pool", 1),
]
DEADLINE = 60  # seconds; long, for a busy machine


def open_channel(address, credentials=None):
    if credentials:
        return grpc.secure_channel(address, credentials, OPTIONS)
    return grpc.insecure_channel(address, OPTIONS)


def to_tensor(array):
    return pb.Tensor(
        datatype=pb.DATA_TYPE_FP32, shape=array.shape, data=array.tobytes()
    )


def to_request(problem):
    return pb.AttendRequest(
        id="proxied",
        query=to_tensor(problem.query),
        key_value=pb.KeyValueTensors(
            key=to_tensor(problem.key), value=to_tensor(problem.value)
        ),
    )


def to_inference(problem):
    return oip.ModelInferRequest(
        id="proxied",
        model_name="scaled_dot_product_attention",
        inputs=[
            oip.ModelInferRequest.InferInputTensor(
                name=name, datatype="FP32", shape=array.shape
            )
            for name, array in problem.tensors.items()
        ],
        raw_input_contents=[array.tobytes() for array in problem.tensors.values()],
    )


def check(problem, reply):
    output = np.frombuffer(reply.output.data, np.float32)
    expected, _, _ = problem.expected()
    np.testing.assert_allclose(output.reshape(expected.shape), expected, atol=1e-5)


def attend(address, problem, credentials=None, deadline=DEADLINE):
    """A call over a new connection."""
    with open_channel(address, credentials) as channel:
        return rpc.AttentionServiceStub(channel).Attend(
            to_request(problem), timeout=deadline
        )


class Load:
    """Threads that call with a small problem by both APIs in turn, until its end.

    A call is good if it is answered with the bits that the first answer had, which
    is checked.
    """

    def __init__(self, address, threads=4):
        self.codes = Counter()
        self.slowest = 0.0  # seconds
        self._problem = oracle.Problem()
        self._changed = threading.Condition()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._run, args=(address,)) for _ in range(threads)
        ]
        with open_channel(address) as channel:
            reply = rpc.AttentionServiceStub(channel).Attend(
                to_request(self._problem), timeout=DEADLINE
            )
        check(self._problem, reply)
        self._good = reply.output.data

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending = True
        for thread in self._threads:
            thread.join()

    def __str__(self):
        return f"calls {dict(self.codes)}, the slowest {self.slowest:.2f} s"

    def wait_for(self, calls, seconds=120):
        """Until so many calls have ended since the start, well or not."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.codes.total() >= calls, timeout=seconds
            ), f"{self.codes} after {seconds} s"

    def _run(self, address):
        with open_channel(address) as channel:
            attend = rpc.AttentionServiceStub(channel).Attend
            infer = oip_rpc.GRPCInferenceServiceStub(channel).ModelInfer
            calls = [
                (attend, to_request(self._problem), lambda reply: reply.output.data),
                (
                    infer,
                    to_inference(self._problem),
                    lambda r: r.raw_output_contents[0],
                ),
            ]
            while not self._ending:
                for call in calls:
                    self._call(*call)

    def _call(self, method, request, output):
        start = time.monotonic()
        try:
            reply = method(request, timeout=DEADLINE)
            code = "OK" if output(reply) == self._good else "WRONG"
        except grpc.RpcError as error:
            code = f"{error.code().name}: {error.details()}"
        with self._changed:
            self.codes[code] += 1
            self.slowest = max(self.slowest, time.monotonic() - start)
            self._changed.notify_all()
