"""The ways beside our server: in process, vLLM, and Triton with PyTorch."""

import pickle
import time

import grpc
import numpy as np

from attention_client import _messages
from compare.cases import Case as PeersCase
from compare.compare import vllm_library
from compare.expected import Expected
from compare.measure import CannotDo
from compare.ours import Ours
from compare.progress import say
from resident.case import HEADS, KV_HEADS, WIDTH, Way
from triton_peer.triton import TritonServer

PAGE = 64  # keys


class InProcess:
    """attention-benchmark. It leaves its inputs and what is right in `folder`, for peers."""

    can = True

    def __init__(self, stack, binaries, case, threads, folder):
        case.in_process = PeersCase(
            "",
            "",
            batch=case.batch,
            query_heads=HEADS,
            kv_heads=KV_HEADS,
            query_length=1,
            key_length=case.length,
            width=WIDTH,
            page=PAGE,
            dtype="FP32" if case.name == "FP32" else "BF16",
            key_dtype="INT8" if case.name == "INT8" else "",
        )
        file = folder / "case.safetensors"
        binary = binaries / "attention-benchmark"
        self._ours = Ours("in process", binary, case.in_process, threads, file)
        stack.callback(self._ours.close)
        right = Expected(case.in_process, self._ours.tensors)
        if wrong := right.error_in(self._ours.results()):
            raise RuntimeError(f"in process: {wrong}")
        (folder / "expected").write_bytes(pickle.dumps(right))
        self._ours.tensors.clear()

    def measure(self, seconds):
        return self._ours.measure(seconds)


class Vllm:
    """vLLM's attention: the fastest of its instruction sets that has the case."""

    def __init__(self, stack, vllm, case, threads, folder):
        library = vllm_library(threads, vllm)
        stack.callback(library.close)
        made = []
        for name in library.offers(case.in_process):
            try:
                made.append(library.make(name, case.in_process, folder))
            except CannotDo as error:
                say(f"{name}: {error}")
        if not made:
            say(f"vLLM has no keys of {case.name}")
        self._peer = min(made, key=lambda peer: peer.measure(0), default=None)
        self.can = self._peer is not None

    def measure(self, seconds):
        return self._peer.measure(seconds)


class Triton(Way):
    """A Triton server's model that holds the keys."""

    def __init__(self, stack, address, case):
        # PyTorch has no attention over keys of 8 bits.
        self.can = case.name != "INT8"
        if not self.can:
            return
        options = [
            (f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")
        ]
        channel = stack.enter_context(grpc.insecure_channel(address, options=options))
        reply = _messages.message("inference.ModelInferResponse")
        self._infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            response_deserializer=reply.FromString,
        )
        bits = np.array([8 * case.key.itemsize], np.int32)
        sequences = np.array([case.batch], np.int32)
        self._infer(request_of(bits=bits, sequences=sequences))
        for key, value in case.appends():
            self._infer(request_of(key=key, value=value))
        self._query = case.query
        self._answer = None
        self.call()
        case.check("Triton", np.frombuffer(self._answer, case.type))

    def call(self):
        began = time.perf_counter()
        reply = self._infer(request_of(query=self._query))
        self._answer = reply.raw_output_contents[0]
        return time.perf_counter() - began

    @staticmethod
    def server(folder, threads):
        return TritonServer(folder, "resident_sdpa", {"OMP_NUM_THREADS": str(threads)})


def request_of(**arrays):
    """A request for the model, of integers or of the bytes of elements."""
    request = _messages.message("inference.ModelInferRequest")(
        model_name="resident_sdpa"
    )
    for name, array in arrays.items():
        kind = "INT32"
        if array.dtype != np.int32:
            kind = "UINT8"
            array = np.ascontiguousarray(array).view(np.uint8)
        request.inputs.add(name=name, datatype=kind, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request.SerializeToString()
