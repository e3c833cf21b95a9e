"""Calls that are recorded with what their answers tell, and chance in what they ask for."""

import time

import grpc
import numpy as np
from attention.v1 import attention_pb2_grpc as rpc
from contents import Torn, key_id
from meaning import problem_of
from names import Places, kind_number
from recording import Recorder

DEADLINE = 60  # seconds, where no shorter one is the point


class Caller:
    def __init__(self, address, number, folder, seed, hurry=True):
        self._number = number
        self._places = Places(folder)
        self._recorder = Recorder(folder / f"calls-{number}")
        self._random = np.random.default_rng(seed)
        self._hurry = hurry
        self._operations = 0
        self._names = {}  # that there are now, with their layers
        self._lengths = {}  # as they were told last, by name and layer
        self._channel = grpc.insecure_channel(
            address, [("grpc.use_local_subchannel_pool", 1)]
        )
        self._store = rpc.KeyValueServiceStub(self._channel)
        self._attention = rpc.AttentionServiceStub(self._channel)

    def _timeout(self):
        """Now and then too short: such a call is over somewhere on its way."""
        if self._hurry and self._random.random() < 0.1:
            return self._random.random() * 0.006
        return DEADLINE

    def _call(self, method, request, calls, results, timeout=None):
        """Records it. `results` makes of the reply what it tells of each of `calls`.
        True where the answer is OK."""
        number = self._recorder.begin(calls)
        reply = None
        try:
            reply = method(request, timeout=timeout or self._timeout())
            answer = {"code": "OK", "details": ""}
        except grpc.RpcError as error:
            answer = {"code": error.code().name, "details": error.details()}
        now = time.monotonic_ns()
        return self._note(
            number, calls, answer, now, reply and (lambda: results(reply))
        )

    def _note(self, number, calls, answer, now, results):
        if answer["code"] == "OK":
            try:
                answer["results"] = results()
            except Torn as torn:
                self._recorder.problem(f"{calls}: {torn}")
                answer = {"code": "CANCELLED", "details": "torn"}
        problem = problem_of(calls, answer)
        if problem:
            self._recorder.problem(problem)
        self._recorder.end(number, answer, now)
        for call, result in zip(calls, answer.get("results", ())):
            length = result.get("length", result.get("read"))
            if isinstance(length, int):
                self._lengths[call["name"], call["layer"]] = length
            elif isinstance(length, dict):
                for layer, one in length.items():
                    self._lengths[call["name"], layer] = one
        return answer["code"] == "OK"

    def _any_layer(self):
        name = str(self._random.choice(list(self._names)))
        return name, int(self._random.integers(self._names[name]))

    def _new_keys(self, name, count=None):
        self._operations += 1
        if count is None:
            # One in thirty goes over a page's end, wherever it begins.
            many = self._random.random() < 0.03
            count = 65 if many else int(self._random.integers(1, 4))
        return tuple(
            key_id(self._number, self._operations, n, kind_number(name))
            for n in range(count)
        )

    def _place_of(self, name, layer):
        """Where an append goes: mostly behind the last key as far as this one knows."""
        if self._random.random() < 0.5:
            return None
        length = self._lengths.get((name, layer), 0)
        if self._random.random() < 0.1:
            return max(0, length + int(self._random.integers(-3, 4)))
        return length
