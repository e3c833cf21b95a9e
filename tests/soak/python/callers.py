"""What callers do in a soak, and the codes that each may end with."""

import contextlib
import http.client
import itertools
import os
import socket
import threading
import time

import grpc
import numpy as np
from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc
from begun_call import BEGUN_CALL
from inference import grpc_service_pb2 as oip
from inference import grpc_service_pb2_grpc as oip_rpc
from problems import MODELS, SoakProblem
from sequences_of_caller import SequencesOfCaller

DEADLINE = 120  # seconds, where no shorter one is the point
OK, CANCELLED, DEADLINE_EXCEEDED, EXHAUSTED, INVALID = (
    "OK",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "INVALID_ARGUMENT",
)


regions = itertools.count()  # for names


def filled(*shape):
    data = np.full(shape, 0.5, "<f4").tobytes()
    return pb.Tensor(datatype=pb.DATA_TYPE_FP32, shape=shape, data=data)


def request_of(query, key, value, name="soak"):
    return pb.AttendRequest(
        id=name, query=query, key_value=pb.KeyValueTensors(key=key, value=value)
    )


class Caller:
    """A thread's calls, over connections of its own."""

    def __init__(self, server, seed, tally):
        self._address = server.address
        self._http_address = server.http_address
        self._random = np.random.default_rng(seed)
        self._tally = tally
        self._sequences = SequencesOfCaller(self._random, tally)
        self._long = request_of(*[filled(1, 4, 4000, 8)] * 3)  # some 50 ms
        # What they do, how often, and the codes that it may end with.
        self._actions = [
            (self._attend, 30, {OK}),
            (self._infer, 30, {OK}),
            (self._http_infer, 10, {OK}),
            (self._shared_memory_infer, 10, {OK}),
            (self._attend_stream, 6, {OK}),
            (self._infer_stream, 6, {OK}),
            (self._cancelled, 4, {OK, CANCELLED}),
            (self._late, 4, {OK, DEADLINE_EXCEEDED, EXHAUSTED}),
            (self._wrong, 8, {INVALID}),
            (self._request_too_large, 2, {EXHAUSTED}),
            (self._reply_too_large, 4, {EXHAUSTED}),
            (self._slow_reader, 1, {OK}),
            (self._absent_reader, 1, {OK, CANCELLED}),
            (self._broken_connection, 2, {OK}),
            (self._sequence, 40, {OK}),
            (self._late_append, 3, {OK}),
        ]

    def run(self, ending: threading.Event):
        while not ending.is_set():
            # A new connection now and then: they come and go in real life, too.
            with self._connected():
                self._act_for_a_while(ending)
        with self._connected():
            self._sequences.end()

    @contextlib.contextmanager
    def _connected(self):
        options = [
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        with (
            grpc.insecure_channel(self._address, options) as channel,
            contextlib.closing(
                http.client.HTTPConnection(self._http_address, timeout=DEADLINE)
            ) as self._http,
        ):
            self._stub = rpc.AttentionServiceStub(channel)
            self._oip = oip_rpc.GRPCInferenceServiceStub(channel)
            self._sequences.connect(channel)
            yield

    def _act_for_a_while(self, ending):
        shares = np.array([share for _, share, _ in self._actions], float)
        for _ in range(self._random.integers(1, 100)):
            if ending.is_set():
                return
            index = self._random.choice(len(shares), p=shares / shares.sum())
            self._act(*self._actions[index])

    def _act(self, action, _share, allowed):
        name = action.__name__.strip("_").replace("_", " ")
        details = ""
        try:
            code = action() or OK
        except grpc.RpcError as error:
            code, details = error.code().name, error.details()
        except (OSError, http.client.HTTPException) as error:
            code, details = type(error).__name__, str(error)
        self._tally.count(name, code, allowed, details)

    def _problem(self):
        return SoakProblem(int(self._random.integers(2**63)))

    def _check(self, farthest, reply, problem):
        # Every third answer, for NumPy takes longer than the server.
        if self._random.random() < 0.33:
            self._tally.check(farthest(reply), problem)

    def _attend(self):
        problem = self._problem()
        reply = self._stub.Attend(problem.attend_request("soak"), timeout=DEADLINE)
        self._check(problem.farthest_of_attend, reply, problem)

    def _infer(self):
        problem = self._problem()
        reply = self._oip.ModelInfer(problem.infer_request("soak"), timeout=DEADLINE)
        self._check(problem.farthest_of_infer, reply, problem)

    def _http_infer(self):
        problem = self._problem()
        body, json_size = problem.http_infer_request()
        self._http.request(
            "POST",
            f"/v2/models/{MODELS[problem.attention.scoring]}/infer",
            body,
            {"Inference-Header-Content-Length": str(json_size)},
        )
        reply = self._http.getresponse()
        text = reply.read()
        if reply.status != 200:
            self._tally.note(False, f"infer over HTTP: {text}")
            return f"HTTP {reply.status}"
        json_size = int(reply.headers["Inference-Header-Content-Length"])
        self._check(
            lambda body: problem.farthest_of_http(body, json_size), text, problem
        )

    def _shared_memory_infer(self):
        """Inputs and outputs in a region that comes and goes."""
        name = f"attention-soak-{os.getpid()}-{next(regions)}"
        problem = self._problem()
        request, data, size = problem.infer_request_in_region(name)
        path = f"/dev/shm/{name}"
        try:
            with open(path, "wb") as memory:
                memory.write(data)
                memory.truncate(size)
            self._oip.SystemSharedMemoryRegister(
                oip.SystemSharedMemoryRegisterRequest(
                    name=name, key=f"/{name}", byte_size=size
                ),
                timeout=DEADLINE,
            )
            self._oip.ModelInfer(request, timeout=DEADLINE)
            self._oip.SystemSharedMemoryUnregister(
                oip.SystemSharedMemoryUnregisterRequest(name=name), timeout=DEADLINE
            )
            with open(path, "rb") as memory:
                results = memory.read()[len(data) :]
        finally:
            os.unlink(path)
        self._check(problem.farthest_of_region, results, problem)

    def _attend_stream(self):
        """Replies by id, one wrong request among them."""
        problems = [self._problem() for _ in range(8)]
        requests = [p.attend_request(str(n)) for n, p in enumerate(problems)]
        requests.append(request_of(filled(1, 4), filled(3, 5), filled(3, 2), "wrong"))
        missing = {request.id for request in requests}
        for reply in self._stub.AttendStream(iter(requests), timeout=DEADLINE):
            missing.remove(reply.id)
            if reply.id == "wrong":
                self._tally.note(reply.error.code == 3, f"a wrong request: {reply}")
            elif reply.HasField("error"):
                self._tally.note(False, f"AttendStream: {reply.error}")
            else:
                problem = problems[int(reply.id)]
                self._check(problem.farthest_of_attend, reply.result, problem)
        self._tally.note(not missing, f"AttendStream: no reply to {missing}")

    def _infer_stream(self):
        problems = [self._problem() for _ in range(8)]
        requests = [p.infer_request(str(n)) for n, p in enumerate(problems)]
        requests.insert(4, self._problem().infer_request("wrong"))
        requests[4].model_name = "nobody"
        replies = list(self._oip.ModelStreamInfer(iter(requests), timeout=DEADLINE))
        errors = [reply.error_message for reply in replies]
        good = [bool(error) for error in errors] == [n == 4 for n in range(9)]
        self._tally.note(good, f"ModelStreamInfer: errors {errors}")
        if good:
            del replies[4]
            for problem, reply in zip(problems, replies, strict=True):
                self._check(problem.farthest_of_infer, reply.infer_response, problem)

    def _cancelled(self):
        call = self._stub.Attend.future(self._long, timeout=DEADLINE)
        time.sleep(self._random.random() * 0.05)  # somewhere on its way
        call.cancel()
        return call.code().name

    def _late(self):
        self._stub.Attend(self._long, timeout=self._random.random() * 0.02)

    def _wrong(self):
        if self._random.random() < 0.5:
            wrong = request_of(filled(1, 4), filled(3, 5), filled(3, 2))
            self._stub.Attend(wrong, timeout=DEADLINE)
            return
        request = self._problem().infer_request("soak")
        request.raw_input_contents[1] = request.raw_input_contents[1][:-1]
        self._oip.ModelInfer(request, timeout=DEADLINE)

    def _request_too_large(self):
        self._stub.Attend(request_of(*[filled(700_000, 1)] * 3), timeout=DEADLINE)

    def _reply_too_large(self):
        wide = request_of(filled(1, 1), filled(0, 1), filled(0, 60_000_000))
        self._stub.Attend(wide, timeout=DEADLINE)

    def _replies_of_a_megabyte(self):
        requests = [
            request_of(filled(1, 1), filled(0, 1), filled(0, 250_000), str(n))
            for n in range(16)
        ]
        return self._stub.AttendStream(iter(requests), timeout=DEADLINE)

    def _slow_reader(self):
        replies = 0
        for _ in self._replies_of_a_megabyte():
            replies += 1
            time.sleep(0.1)  # it is slow
        self._tally.note(replies == 16, f"a slow reader: {replies} of 16 replies")

    def _absent_reader(self):
        stream = self._replies_of_a_megabyte()
        time.sleep(1)  # nobody reads meanwhile
        stream.cancel()
        return stream.code().name

    def _broken_connection(self):
        """A call that is cut off somewhere, in its message at the latest."""
        host, port = self._address.split(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE) as cut:
            with contextlib.suppress(ConnectionError):  # the server may be first
                cut.sendall(BEGUN_CALL[: self._random.integers(len(BEGUN_CALL))])

    def _sequence(self):
        self._sequences.step()

    def _late_append(self):
        self._sequences.late()
