"""Clients that do to a few sequences, at random, all that can be done to them."""

import os
import signal
import time

import grpc
import numpy as np
from attention.v1 import attention_pb2 as pb
from attends import FIELDS, attend_request, attend_results, calls_of, packed_request
from caller import DEADLINE, Caller
from contents import VALUE_WIDTH, Torn, stored_of
from meaning import LOST, REFUSED
from names import FIXED, PLACES, SCALED, kind_of
from sequences import form, tensor

LABEL = "histories"
LONGEST = 150  # keys; pages have 64

CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class Client(Caller):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._streams = 0
        self._last = {}  # appends that may be repeated: (position, keys)
        self._actions = [
            (self._append, 14),
            (self._append_again, 7),
            (self._attend, 22),
            (self._decode, 14),
            (self._batch, 6),
            (self._stream, 4),
            (self._truncate, 4),
            (self._describe, 3),
            (self._fork, 3),
            (self._fork_empty, 2),
            (self._create, 4),
            (self._delete, 2),
            (self._die, 0.4),
        ]

    def run(self, until):
        """Until this time (time.monotonic_ns)."""
        shares = np.array([share for _, share in self._actions])
        shares /= shares.sum()
        while time.monotonic_ns() < until:
            self._names = FIXED | self._places.names()
            self._actions[self._random.choice(len(shares), p=shares)][0]()

    def _append(self):
        name, layer = self._any_layer()
        if self._lengths.get((name, layer), 0) > LONGEST:
            self._cut(name)
            return
        self._put(name, layer, self._place_of(name, layer), self._new_keys(name))

    def _append_again(self):
        """The same keys at the same place, as who has lost an answer does; and more."""
        if not self._last:
            return
        name, layer = list(self._last)[self._random.integers(len(self._last))]
        position, keys = self._last[name, layer]
        if self._random.random() < 0.3 and keys[-1] & 0x7F < 100:
            keys += tuple(keys[-1] + n for n in range(1, 3))
        if name in self._names:
            self._put(name, layer, position, keys)

    def _put(self, name, layer, position, keys):
        call = {"kind": "append", "name": name, "layer": layer, "keys": keys}
        request = pb.AppendRequest(name=name, layer=layer)
        for field, array in zip(FIELDS, stored_of(keys)):
            getattr(request, field).CopyFrom(tensor(array[None]))
        if position is not None:
            call["position"] = request.position = position
            self._last[name, layer] = (position, keys)
        self._call(
            self._store.Append,
            request,
            [call],
            lambda reply: [{"length": reply.length, "new_keys": reply.new_keys}],
        )

    def _attend(self):
        entries = [(*self._any_layer(), None)]
        shows = self._random.random() < 0.7
        self._call(
            self._attention.Attend,
            attend_request(self._random, entries, None, shows),
            calls_of(entries, None),
            attend_results(entries, shows),
        )

    def _decode(self):
        """A step of generation: append and attend in one call; once more where the
        answer is lost."""
        name, layer = self._any_layer()
        if self._lengths.get((name, layer), 0) > LONGEST:
            self._cut(name)
            return
        entries = [(name, layer, self._place_of(name, layer))]
        appended = [self._new_keys(name)]
        for _ in range(3):
            shows = self._random.random() < 0.7
            request = attend_request(self._random, entries, appended, shows)
            calls = calls_of(entries, appended)
            results = attend_results(entries, shows)
            if self._call(self._attention.Attend, request, calls, results):
                return
            if entries[0][2] is None:
                return  # nobody may repeat it

    def _batch(self):
        count = int(self._random.integers(2, 4))
        # Of one form.
        first, *others = [self._any_layer() for _ in range(4 * count)]
        alike = [one for one in others if kind_of(one[0]) is kind_of(first[0])]
        places = [first, *alike][:count]
        count = len(places)
        packed = self._random.random() < 0.3
        appended = None
        entries = [(*place, None) for place in places]
        # A request that appends names each layer of a sequence once.
        if (
            self._random.random() < 0.5
            and len(set(places)) == count
            and all(self._lengths.get(place, 0) <= LONGEST for place in places)
        ):
            queries = kind_of(first[0]).queries
            length = len(queries) if packed else int(self._random.integers(1, 3))
            appended = [self._new_keys(name, length) for name, _ in places]
            entries = [(*place, self._place_of(*place)) for place in places]
        shows = not packed and self._random.random() < 0.7
        request = (
            packed_request(entries, appended)
            if packed
            else attend_request(self._random, entries, appended, shows)
        )
        self._call(
            self._attention.Attend,
            request,
            calls_of(entries, appended),
            attend_results(entries, shows),
        )

    def _stream(self):
        """Several of them under way at once."""
        self._streams += 1
        stream = (self._number, self._streams)
        begun, nameless = {}, 0

        def requests():
            for n in range(self._random.integers(2, 9)):
                name, layer = self._any_layer()
                full = self._lengths.get((name, layer), 0) > LONGEST
                appended = None
                entries = [(name, layer, None)]
                if not full and self._random.random() < 0.6:
                    appended = [self._new_keys(name)]
                    entries = [(name, layer, self._place_of(name, layer))]
                shows = self._random.random() < 0.7
                request = attend_request(self._random, entries, appended, shows)
                request.id = str(n)
                calls = calls_of(entries, appended)
                calls[0]["turn"] = (stream, n)
                results = attend_results(entries, shows)
                begun[request.id] = (self._recorder.begin(calls), calls, results)
                yield request

        timeout = self._timeout()
        try:
            for reply in self._attention.AttendStream(requests(), timeout=timeout):
                now = time.monotonic_ns()
                answer = {"code": "OK", "details": ""}
                if reply.HasField("error"):
                    code = CODES[reply.error.code]
                    answer = {"code": code, "details": reply.error.message}
                if not reply.id and answer["code"] in LOST | {REFUSED}:
                    nameless += 1  # it was not decoded any more
                    continue
                number, calls, results = begun.pop(reply.id)
                self._note(number, calls, answer, now, lambda: results(reply.result))
            if len(begun) != nameless:
                self._recorder.problem(f"a stream ends without replies to {begun}")
        except grpc.RpcError as error:
            if error.code().name not in ("DEADLINE_EXCEEDED", "CANCELLED"):
                self._recorder.problem(f"a stream: {error.code()} {error.details()}")

    def _truncate(self):
        name, layer = self._any_layer()
        length = self._lengths.get((name, layer), 0)
        self._cut(name, max(0, length - int(self._random.integers(0, 8))))

    def _cut(self, name, length=None):
        if length is None:
            length = int(self._random.integers(0, LONGEST))
        self._call(
            self._store.Truncate,
            pb.TruncateRequest(name=name, length=length),
            [{"kind": "truncate", "name": name, "wanted": length}],
            lambda _: [{}],
        )
        for layer in range(self._names.get(name, 1)):
            self._lengths[name, layer] = length

    def _describe(self):
        name, _ = self._any_layer()
        self._call(
            self._store.Describe,
            pb.DescribeSequenceRequest(name=name),
            [{"kind": "describe", "name": name}],
            lambda reply: [{"length": dict(enumerate(reply.lengths))}],
        )

    def _create(self):
        name = str(self._random.choice(list(FIXED)))
        request = pb.CreateSequencesRequest()
        kind = kind_of(name)
        datatype = pb.DataType.Value(f"DATA_TYPE_{kind.datatype}")
        request.sequences.add(
            name=name,
            form=form(FIXED[name], 1, kind.width, VALUE_WIDTH, datatype),
            label=LABEL,
        )
        self._call(
            self._store.Create,
            request,
            [{"kind": "create", "name": name}],
            lambda _: [{}],
        )

    def _delete(self, name=None):
        # A fork is for ever, or others would seldom find one.
        name = name or str(self._random.choice(list(FIXED)))
        self._call(
            self._store.Delete,
            pb.DeleteSequencesRequest(names=[name]),
            [{"kind": "delete", "name": name}],
            lambda reply: [{"deleted": reply.deleted}],
        )

    def _fork(self):
        """Under a name that nobody else knows, so that the fork's content is read before
        others may change it. The server makes it, but where it says how keys are stored."""
        name, layer = self._any_layer()
        request = pb.ForkRequest(name=name)
        for start in filter(name.startswith, SCALED):
            self._operations += 1
            request.new_name = f"{start}{self._number}-{self._operations}"
        call = {"kind": "fork", "name": name}
        if self._random.random() < 0.3:
            length = self._lengths.get((name, layer), 0)
            call["wanted"] = request.length = int(self._random.integers(length + 1))
        number = self._recorder.begin([call])
        try:
            fork = self._store.Fork(request, timeout=self._timeout()).name
        except grpc.RpcError as error:
            answer = {"code": error.code().name, "details": error.details()}
            self._note(number, [call], answer, time.monotonic_ns(), None)
            return
        now = time.monotonic_ns()
        layers = self._names[name]
        seen = {}
        try:
            for one in range(layers):
                entries = [(fork, one, None)]
                request = attend_request(self._random, entries, None, True)
                reply = self._attention.Attend(request, timeout=DEADLINE)
                seen[one] = attend_results(entries, True)(reply)[0]["seen"]
        except (grpc.RpcError, Torn) as error:
            self._recorder.problem(f"a fork of {name} cannot be read: {error}")
            return
        answer = {"code": "OK", "details": "", "results": [{"seen": seen}]}
        self._recorder.end(number, answer, now)
        # It begins with what was read.
        born = self._recorder.begin([{"kind": "born", "name": fork, "layers": layers}])
        self._recorder.end(born, answer)
        before = self._places.put(self._random.integers(PLACES), fork, layers)
        if before is not None:
            self._delete(before)

    def _fork_empty(self):
        """Under a name that others make and delete as well; without keys, so that what it
        begins with is known."""
        target = str(self._random.choice(list(FIXED)))
        sources = [
            name
            for name in self._names
            if self._names[name] == FIXED[target] and kind_of(name) is kind_of(target)
        ]
        source = str(self._random.choice(sources))
        self._call(
            self._store.Fork,
            pb.ForkRequest(name=source, new_name=target, length=0, label=LABEL),
            [
                {"kind": "fork", "name": source, "wanted": 0},
                {"kind": "create", "name": target},
            ],
            lambda _: [{}, {}],
        )

    def _die(self):
        """In the middle of a call."""
        if not self._hurry:
            return
        name, layer = self._any_layer()
        entries = [(name, layer, self._place_of(name, layer))]
        appended = [self._new_keys(name)]
        request = attend_request(self._random, entries, appended, False)
        self._recorder.begin(calls_of(entries, appended))
        self._attention.Attend.future(request, timeout=DEADLINE)
        time.sleep(self._random.random() * 0.004)
        os.kill(os.getpid(), signal.SIGKILL)

    # ---- when all is quiet

    def read_all(self, layers_of):
        """Reads every sequence as it is, of those that histories are kept of, and deletes
        what nobody knows."""
        known = FIXED | self._places.names()
        there = {
            one.name: one
            for one in self._store.List(
                pb.ListSequencesRequest(page_size=1000), timeout=DEADLINE
            ).sequences
        }
        for name in layers_of:
            for layer in range(layers_of[name]):
                entries = [(name, layer, None)]
                self._call(
                    self._attention.Attend,
                    attend_request(self._random, entries, None, True),
                    calls_of(entries, None),
                    attend_results(entries, True),
                    DEADLINE,
                )
        lost = [name for name in there if name not in known]
        for at in range(0, len(lost), 256):
            self._store.Delete(pb.DeleteSequencesRequest(names=lost[at : at + 256]))
