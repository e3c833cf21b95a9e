"""A caller's keys and values at the server, and what they must be."""

import contextlib

import contract
import grpc
import numpy as np
from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc
from problems import TYPES, from_bytes, to_bytes

LABEL = "soak"
MOST = 4  # of one caller at a time
LONGEST = 400  # keys
DEADLINE = 120


class Sequence:
    """What the server should have: a copy."""

    def __init__(self, name, datatype, key, value):
        self.name = name
        self.datatype = datatype
        self.key = key  # (Hkv, n, D)
        self.value = value

    @property
    def length(self):
        return self.key.shape[1]

    def cut(self, length):
        self.key, self.value = self.key[:, :length], self.value[:, :length]

    def add(self, key, value):
        self.key = np.concatenate([self.key, key], axis=1)
        self.value = np.concatenate([self.value, value], axis=1)


class SequencesOfCaller:
    def __init__(self, random, tally):
        self._random = random
        self._tally = tally
        self._all = []

    def connect(self, channel):
        self._store = rpc.KeyValueServiceStub(channel)
        self._attention = rpc.AttentionServiceStub(channel)

    def step(self):
        """Something with one of them. Errors of gRPC are the caller's."""
        random = self._random
        if len(self._all) < 2 or (len(self._all) < MOST and random.random() < 0.1):
            return self._create()
        one = self._all[random.integers(len(self._all))]
        if one.length > LONGEST or random.random() < 0.05:
            return self._delete(one)
        actions = [self._append, self._attend, self._decode, self._fork, self._truncate]
        return actions[random.choice(5, p=[0.25, 0.35, 0.25, 0.1, 0.05])](one)

    def late(self):
        """An append whose answer may be lost is repeated, and comes once."""
        if not self._all:
            return
        one = self._all[self._random.integers(len(self._all))]
        key, value = self._rows(one, 64)
        request = self._append_request(one, key, value)
        with contextlib.suppress(grpc.RpcError):
            self._store.Append(request, timeout=self._random.random() * 0.005)
        request.position = one.length
        reply = self._store.Append(request, timeout=DEADLINE)
        one.add(key, value)
        self._tally.note(
            reply.length == one.length and reply.new_keys in (0, 64),
            f"a repeated append: {reply}, {one.length} keys expected",
        )

    def end(self):
        for one in list(self._all):
            self._delete(one)

    # ---- steps

    def _create(self):
        random = self._random
        datatype = str(random.choice(["FP32", "BF16", "FP16"]))
        heads, width, value_width = random.choice([1, 2]), *random.choice([4, 16, 64], 2)
        form = pb.SequenceForm(
            heads=heads,
            key_width=width,
            value_width=value_width,
            datatype=TYPES[datatype][0],
        )
        request = pb.CreateSequencesRequest()
        request.sequences.add(form=form, label=LABEL)
        (name,) = self._store.Create(request, timeout=DEADLINE).names
        empty = [np.zeros((heads, 0, w), np.float32) for w in (width, value_width)]
        self._all.append(Sequence(name, datatype, *empty))

    def _delete(self, one):
        request = pb.DeleteSequencesRequest(names=[one.name])
        deleted = self._store.Delete(request, timeout=DEADLINE).deleted
        self._all.remove(one)
        self._tally.note(deleted == 1, f"{one.name} was not there any more")

    def _append(self, one):
        key, value = self._rows(one, int(self._random.integers(1, 150)))
        request = self._append_request(one, key, value)
        length = self._store.Append(request, timeout=DEADLINE).length
        one.add(key, value)
        self._tally.note(length == one.length, f"{length} keys, not {one.length}")

    def _attend(self, one):
        if one.length > 0:
            self._ask(one, int(self._random.integers(1, 9)))

    def _decode(self, one):
        """An append and an attend in one."""
        count = int(self._random.integers(1, 4))
        key, value = self._rows(one, count)
        request = pb.KeyValueTensors(
            key=self._tensor(one, key[None]), value=self._tensor(one, value[None])
        )
        self._ask(one, count, request, key, value)

    def _fork(self, one):
        if len(self._all) >= MOST:
            return
        length = int(self._random.integers(0, one.length + 1))
        request = pb.ForkRequest(name=one.name, length=length)
        name = self._store.Fork(request, timeout=DEADLINE).name
        fork = Sequence(name, one.datatype, one.key, one.value)
        fork.cut(length)
        self._all.append(fork)

    def _truncate(self, one):
        length = int(self._random.integers(0, one.length + 1))
        request = pb.TruncateRequest(name=one.name, length=length)
        self._store.Truncate(request, timeout=DEADLINE)
        one.cut(length)

    # ---- parts of them

    def _numbers(self, datatype, *shape):
        numbers = self._random.normal(size=shape).astype(np.float32)
        exact = from_bytes(to_bytes(numbers, datatype), datatype)
        return exact.astype(np.float32).reshape(shape)

    def _rows(self, one, count):
        heads, _, width = one.key.shape
        return (
            self._numbers(one.datatype, heads, count, width),
            self._numbers(one.datatype, heads, count, one.value.shape[2]),
        )

    def _tensor(self, one, array):
        return pb.Tensor(
            datatype=TYPES[one.datatype][0],
            shape=array.shape,
            data=to_bytes(array, one.datatype),
        )

    def _append_request(self, one, key, value):
        return pb.AppendRequest(
            name=one.name, key=self._tensor(one, key), value=self._tensor(one, value)
        )

    def _ask(self, one, queries, append=None, key=None, value=None):
        heads, _, width = one.key.shape
        group = int(self._random.choice([1, 2]))
        query = self._numbers(one.datatype, 1, heads * group, queries, width)
        sequences = pb.Sequences(append=append)
        sequences.entries.add(name=one.name)
        request = pb.AttendRequest(
            id="soak",
            query=self._tensor(one, query),
            sequences=sequences,
            causal=pb.CAUSAL_BOTTOM_RIGHT,
        )
        reply = self._attention.Attend(request, timeout=DEADLINE)
        if append is not None:
            one.add(key, value)
        if self._random.random() < 0.5:
            return  # NumPy takes longer than the server
        attention = contract.Attention(
            query, one.key[None], one.value[None], options={"causal": "bottom_right"}
        )
        answer = contract.solve(attention, one.datatype)
        actual = from_bytes(reply.output.data, one.datatype).astype(np.float64)
        if actual.size != answer.output.size:
            farthest = np.inf
        else:
            actual = actual.reshape(answer.output.shape)
            farthest = contract.farthest(actual, answer.output, answer.output_tolerance)
        self._tally.check(
            farthest,
            f"a sequence of {one.length} keys, {one.datatype}, {one.key.shape}, "
            f"{one.value.shape}, query {query.shape}, {'with' if append else 'without'} "
            "an append",
        )
