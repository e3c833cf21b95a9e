"""Clients that do to a few sequences, at random, all that can be done to them."""

import os
import signal
import time

import grpc
import numpy as np
from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc
from contents import KINDS, VALUE_WIDTH, Torn, key_id, stored_of
from meaning import LOST, REFUSED, problem_of
from recording import Recorder
from sequences import array_of, form, tensor

# Names that everybody makes and deletes, with their layers.
FIXED = {"one": 1, "other": 1, "two-layers": 2, "int8-one": 1, "fp8-one": 1}
# Which names are of sequences that are stored otherwise than in FP32: places in KINDS.
SCALED = {"int8-": 1, "fp8-": 2}
# Places for names of forks, which the server makes.
PLACES = 3
LABEL = "histories"
LONGEST = 150  # keys; pages have 64
DEADLINE = 60  # seconds, where no shorter one is the point

FIELDS = ("key", "value", "key_scale", "value_scale")  # of what is stored
CODES = {code.value[0]: code.name for code in grpc.StatusCode}


def kind_number(name):
    return next((n for start, n in SCALED.items() if name.startswith(start)), 0)


def kind_of(name):
    return KINDS[kind_number(name)]


class Places:
    """Where clients leave the names of forks for each other. A file for each."""

    def __init__(self, folder):
        self._folder = folder

    def names(self):
        """With their layers."""
        found = {}
        for place in range(PLACES):
            try:
                name, layers = (self._folder / f"place{place}").read_text().split()
            except FileNotFoundError:
                continue
            found[name] = int(layers)
        return found

    def put(self, place, name, layers):
        """The name that was there before, or None."""
        path = self._folder / f"place{place}"
        before = path.read_text().split()[0] if path.exists() else None
        mine = self._folder / f"new-{os.getpid()}"
        mine.write_text(f"{name} {layers}")
        mine.rename(path)
        return before


class Client:
    def __init__(self, address, number, folder, seed, hurry=True):
        self._number = number
        self._places = Places(folder)
        self._recorder = Recorder(folder / f"calls-{number}")
        self._random = np.random.default_rng(seed)
        self._hurry = hurry
        self._operations = self._streams = 0
        self._lengths = {}  # as they were told last, by name and layer
        self._last = {}  # appends that may be repeated: (position, keys)
        self._channel = grpc.insecure_channel(
            address, [("grpc.use_local_subchannel_pool", 1)]
        )
        self._store = rpc.KeyValueServiceStub(self._channel)
        self._attention = rpc.AttentionServiceStub(self._channel)
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

    # ---- calls

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

    # ---- chance

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

    # ---- what they do

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

    def _attend_request(self, entries, appended, shows):
        """Of (name, layer, position) and the keys that each brings, or none. `shows`: the
        answer shows the keys themselves, and not only an output."""
        lead = (
            (len(entries), 1)
            if len(entries) > 1
            else ((), (1, 1))[self._random.integers(2)]
        )
        queries = kind_of(entries[0][0]).queries
        request = pb.AttendRequest(
            id="histories",
            query=tensor(np.broadcast_to(queries, (*lead, *queries.shape))),
            scaled_dot_product=pb.ScaledDotProduct(scale=1),
            return_lse=True,
        )
        for name, layer, position in entries:
            request.sequences.entries.add(name=name, layer=layer, position=position)
        if appended:
            rows = [stored_of(keys) for keys in appended]
            for field, of_entries in zip(FIELDS, zip(*rows)):
                array = np.stack(of_entries)
                shape = (*lead, *array.shape[1:])
                getattr(request.sequences.append, field).CopyFrom(
                    tensor(array.reshape(shape))
                )
        if shows:
            request.scores = pb.SCORES_SCALED
        return request

    def _packed_request(self, entries, appended):
        """Likewise; each brings as many keys as there are queries."""
        count = len(entries)
        queries = kind_of(entries[0][0]).queries
        starts = np.arange(count + 1, dtype="<i4") * len(queries)
        request = pb.AttendRequest(
            id="packed",
            query=tensor(np.tile(queries, (count, 1))[:, None]),
            query_starts=pb.Tensor(
                datatype=pb.DATA_TYPE_INT32, shape=starts.shape, data=starts.tobytes()
            ),
            scaled_dot_product=pb.ScaledDotProduct(scale=1),
            return_lse=True,
        )
        for name, layer, position in entries:
            request.sequences.entries.add(name=name, layer=layer, position=position)
        if appended:
            rows = stored_of([one for keys in appended for one in keys])
            for field, array in zip(FIELDS, rows):
                getattr(request.sequences.append, field).CopyFrom(
                    tensor(array[:, None])
                )
        return request

    def _attend_results(self, entries, shows):
        count, kind = len(entries), kind_of(entries[0][0])
        rows = len(kind.queries)

        def results(reply):
            outputs = array_of(reply.output).reshape(count, rows, VALUE_WIDTH)
            lengths = np.exp(array_of(reply.lse).reshape(count, rows)[:, -1])
            told = [
                {"output": output, "read": round(float(length))}
                for output, length in zip(outputs, lengths)
            ]
            # Of several that differ in length the server answers with one extent, of which
            # only the output tells where each begins.
            if shows and len(reply.scores.shape) > 1:
                scores = array_of(reply.scores)
                scores = scores.reshape(count, rows, scores.shape[-1])
                for result, one in zip(told, scores):
                    # Behind a shorter entry's keys there is nothing.
                    keys = np.where(np.isfinite(one), one, 0)[: kind.width].T
                    there = np.flatnonzero(keys[:, 0])
                    keys = keys[: there[-1] + 1 if len(there) else 0]
                    result["seen"] = kind.ids_of(keys)
            return told

        return results

    def _calls(self, entries, appended):
        calls = []
        for n, (name, layer, position) in enumerate(entries):
            call = {"kind": "attend", "name": name, "layer": layer}
            if appended:
                call |= {"keys": appended[n], "position": position}
            calls.append(call)
        return calls

    def _attend(self):
        entries = [(*self._any_layer(), None)]
        shows = self._random.random() < 0.7
        self._call(
            self._attention.Attend,
            self._attend_request(entries, None, shows),
            self._calls(entries, None),
            self._attend_results(entries, shows),
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
            request = self._attend_request(entries, appended, shows)
            calls = self._calls(entries, appended)
            results = self._attend_results(entries, shows)
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
            self._packed_request(entries, appended)
            if packed
            else self._attend_request(entries, appended, shows)
        )
        self._call(
            self._attention.Attend,
            request,
            self._calls(entries, appended),
            self._attend_results(entries, shows),
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
                request = self._attend_request(entries, appended, shows)
                request.id = str(n)
                calls = self._calls(entries, appended)
                calls[0]["turn"] = (stream, n)
                results = self._attend_results(entries, shows)
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
                request = self._attend_request(entries, None, True)
                reply = self._attention.Attend(request, timeout=DEADLINE)
                seen[one] = self._attend_results(entries, True)(reply)[0]["seen"]
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
        request = self._attend_request(entries, appended, False)
        self._recorder.begin(self._calls(entries, appended))
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
                    self._attend_request(entries, None, True),
                    self._calls(entries, None),
                    self._attend_results(entries, True),
                    DEADLINE,
                )
        lost = [name for name in there if name not in known]
        for at in range(0, len(lost), 256):
            self._store.Delete(pb.DeleteSequencesRequest(names=lost[at : at + 256]))
