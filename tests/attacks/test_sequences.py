"""Keys and values that stay, and callers who mean ill with them."""

import contextlib
import hashlib
import json
import re
import threading
import time

import grpc
import numpy as np
import pytest
from attacked_server import PATIENCE, wait_until
from attention.v1 import attention_pb2 as pb
from grpc import StatusCode
from sequences import Sequences, attend_request, form

MIB = 1 << 20
HUGE = 1 << 62
REFUSED = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.OUT_OF_RANGE,
    StatusCode.RESOURCE_EXHAUSTED,
}


@pytest.fixture
def callers_file(tmp_path):
    """Of greedy and of modest, whose tokens are their names."""
    file = tmp_path / "callers.json"
    callers = [
        {"name": name, "tokens_sha256": [hashlib.sha256(name.encode()).hexdigest()]}
        for name in ("greedy", "modest")
    ]
    file.write_text(json.dumps({"callers": callers}))
    return str(file)


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


def fill(sequences, name, width):
    """Until there is no room; what the server says then."""
    for _ in range(10_000):
        code, details = code_of(sequences.append, name, *rows(64, width))
        if code != StatusCode.OK:
            assert code == StatusCode.RESOURCE_EXHAUSTED, details
            return details
    raise AssertionError("the store has no end")


# ---- a caller that fills the store


def test_a_full_store_says_who_holds_it(start, callers_file):
    server = start("--resident-memory-limit", "8MiB", "--callers-file", callers_file)
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        modest.create("small")
        modest.append("small", *rows(3))
        greedy.create("large", form=form(width=256))
        said = fill(greedy, "large", 256)
        held, limit = map(int, re.search(r"hold (\d+) of (\d+) bytes", said).groups())
        assert 7 * MIB < held <= limit == 8 * MIB
        assert re.search(r"'greedy' \d{7}", said), said
        # The same to others, who keep what they have, and can go on in its pages.
        new = form(layers=4096)
        code, said = code_of(modest.create, "more", form=new)
        assert code == StatusCode.RESOURCE_EXHAUSTED and "'greedy'" in said
        assert modest.append("small", *rows(1)).length == 4
        assert modest.attend(["small"], np.ones((1, 4))).output.shape == [1, 4]
        # Nothing is left of what there was no room for.
        assert code_of(modest.describe, "more")[0] == StatusCode.NOT_FOUND
        lengths = list(greedy.describe("large").lengths)
        assert code_of(greedy.append, "large", *rows(6400, 256))[0] != StatusCode.OK
        assert list(greedy.describe("large").lengths) == lengths
        assert greedy.delete("large") == 1
        modest.create("more", form=new)
        assert server.most_memory() < 256 * MIB


def test_eviction_takes_from_who_holds_most(start, callers_file):
    server = start(
        "--resident-memory-limit", "8MiB", "--resident-evict", "--callers-file", callers_file
    )
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        modest.create("small")
        modest.append("small", *rows(3))
        for n in range(40):  # of 512 KiB each
            greedy.create(f"large{n}", form=form(width=256))
            greedy.append(f"large{n}", *rows(256, 256))
        # His own went; the other's, which was not used for longest, is there.
        code, said = code_of(greedy.describe, "large0")
        assert code == StatusCode.NOT_FOUND and "evicted" in said
        assert greedy.describe("large39").lengths == [256]
        modest.create("half", form=form(width=256))
        for _ in range(24):
            modest.append("half", *rows(64, 256))
        assert modest.describe("small").lengths == [3]
        assert modest.describe("half").lengths == [24 * 64]
        # What cannot fit at all drives out nobody.
        before = greedy.all_names()
        greedy.create("too-large", form=form(width=4096))
        kept = set(before) & set(greedy.all_names())
        code, _ = code_of(greedy.append, "too-large", *rows(512, 4096))
        assert code == StatusCode.RESOURCE_EXHAUSTED
        assert kept <= set(greedy.all_names())


def test_sequences_without_keys_have_an_end_too(start):
    server = start("--resident-memory-limit", "8MiB")
    with server.channel() as channel:
        sequences = Sequences(channel)
        made = 0
        code = StatusCode.OK
        while code == StatusCode.OK:
            code, said = code_of(sequences.create, *[""] * 256)
            made += code == StatusCode.OK
            assert made < 200, "51,200 sequences in 8 MiB"
        assert code == StatusCode.RESOURCE_EXHAUSTED, said
        assert len(sequences.all_names()) == made * 256
        assert server.memory() < 256 * MIB


# ---- names of others


def test_names_of_others_are_not_there(start, tmp_path, callers_file):
    folder = tmp_path / "files"
    folder.mkdir()
    server = start("--callers-file", callers_file, "--resident-folder", str(folder))
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        (secret,) = modest.create("", label="secret")
        modest.create("chosen")
        for name in (secret, "chosen"):
            modest.append(name, *rows(3))
        for name in (secret, "chosen"):
            for call, arguments in (
                (greedy.append, rows(1)),
                (greedy.truncate, (0,)),
                (greedy.fork, ()),
                (greedy.describe, ()),
                (greedy.export_to, ("file",)),
            ):
                code, said = code_of(call, name, *arguments)
                assert (code, call) == (StatusCode.NOT_FOUND, call)
                assert "modest" not in said and "secret" not in said
            code, _ = code_of(greedy.attend, [name], np.ones((1, 4)))
            assert code == StatusCode.NOT_FOUND
            code, _ = code_of(greedy.attend, [name], np.ones((1, 4)), rows(1))
            assert code == StatusCode.NOT_FOUND
            assert greedy.delete(name) == 0
        assert greedy.all_names() == []
        assert code_of(Sequences(channel).all_names)[0] == StatusCode.UNAUTHENTICATED
        # A name of another is free, and is another sequence; a page of a list leads to
        # nobody else's either.
        greedy.create("chosen", secret)
        token = modest.list(page_size=1).next_page_token
        assert len(greedy.list(page_token=token).sequences) <= 2
        assert greedy.describe("chosen").lengths == [0]
        assert greedy.delete("chosen", secret) == 2
        for name in (secret, "chosen"):
            assert modest.describe(name).lengths == [3]


# ---- lying sizes


def appends_that_lie():
    def request(shape=(1, 2, 4), count=8, value_shape=None, **fields):
        data = np.zeros(count, "<f4").tobytes()
        fp32 = pb.DATA_TYPE_FP32
        value = shape if value_shape is None else value_shape
        return pb.AppendRequest(
            name="there",
            key=pb.Tensor(datatype=fp32, shape=shape, data=data),
            value=pb.Tensor(datatype=fp32, shape=value, data=data),
            **fields,
        )

    yield request((1, 3, 4))
    yield request((1, HUGE, 4))
    yield request((1, HUGE, 4), 0)
    yield request((1, 1 << 61, 4), 0)  # 2^65 bytes are none in 64 bits
    yield request((1, -2, 4))
    yield request((-1, 2, -4))
    yield request((HUGE, HUGE, HUGE, HUGE), 0)
    yield request((1,) * 100)
    yield request((2, 2, 2))
    yield request((1, 2, 4), value_shape=(1, 1, 8))
    yield request((1, 2, 4), value_shape=(1, 0, 4))
    yield request((), 1)
    for number in (-1, -HUGE, HUGE, (1 << 63) - 1):
        yield request(position=number)
        yield request(layer=number)
    yield pb.AppendRequest(name="there")
    for datatype in (0, 2, 3, 4, 8, 99, -1):
        bad = request()
        bad.key.datatype = bad.value.datatype = datatype
        yield bad


def test_appends_that_lie_change_nothing(start):
    server = start("--resident-memory-limit", "32MiB")
    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("there")
        sequences.append("there", *rows(5))
        before = sequences.held_bytes()
        for request in appends_that_lie():
            code, said = code_of(sequences.store.Append, request, timeout=PATIENCE)
            assert code in REFUSED, (request, code, said)
            # The same rows with an attend.
            attend = attend_request(["there"], np.ones((1, 1, 2, 4)))
            attend.sequences.append.key.CopyFrom(request.key)
            attend.sequences.append.value.CopyFrom(request.value)
            if request.HasField("position"):
                attend.sequences.entries[0].position = request.position
            if request.HasField("layer"):
                attend.sequences.entries[0].layer = request.layer
            code, said = code_of(sequences.attention.Attend, attend, timeout=PATIENCE)
            assert code in REFUSED, (attend, code, said)
        assert list(sequences.describe("there").lengths) == [5]
        assert sequences.held_bytes() == before
        assert server.most_memory() < 256 * MIB


def test_forms_that_lie_make_nothing(start):
    server = start("--resident-memory-limit", "32MiB")
    with server.channel() as channel:
        sequences = Sequences(channel)
        before = sequences.held_bytes()
        for number in (-1, 0, HUGE, -HUGE, (1 << 63) - 1):
            for field in ("heads", "key_width", "layers", "value_width"):
                lie = form()
                setattr(lie, field, number)
                if (field, number) != ("value_width", 0):
                    code, said = code_of(sequences.create, "a", form=lie)
                    assert code in REFUSED, (lie, said)
            if number != HUGE:
                code, _ = code_of(sequences.create, "a", idle_limit_ms=min(number, 0))
                assert code in REFUSED
            code, _ = code_of(sequences.create, "a", idle_limit_ms=HUGE)
            assert code in REFUSED
        for names in (["n" * 257], ["a b"], ["ä"], ["a\0"], ["a", "a"], ["a"] + [""] * 256):
            code, _ = code_of(sequences.create, *names)
            assert code in REFUSED | {StatusCode.ALREADY_EXISTS}, names
        assert code_of(sequences.create, "a", label="l" * 257)[0] in REFUSED
        # The largest that is legal, of which one key is 4 GiB: it is made, and no more.
        most = form(heads=65536, width=1 << 20, layers=4096)
        sequences.create("most", form=most)
        code, _ = code_of(sequences.append, "most", *rows(1))
        assert code in REFUSED
        sequences.delete("most")
        assert sequences.all_names() == []
        assert sequences.held_bytes() == before
        assert server.most_memory() < 256 * MIB


def test_other_numbers_that_lie(start):
    server = start()
    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("there")
        sequences.append("there", *rows(5))
        for number in (-1, HUGE, (1 << 63) - 1, -HUGE):
            assert code_of(sequences.truncate, "there", number)[0] in REFUSED
            assert code_of(sequences.fork, "there", length=number)[0] in REFUSED
            assert code_of(sequences.list, page_size=number)[0] in REFUSED
        for number in (0, 1001):
            assert code_of(sequences.list, page_size=number)[0] in REFUSED
        for token in ("x", "AA==", "/" * 100_000, "AAAA"):
            code, _ = code_of(sequences.list, page_token=token)
            assert code in REFUSED | {StatusCode.OK}, token
        assert code_of(sequences.delete, *["x"] * 257)[0] in REFUSED
        many = attend_request(["there"] * 10_000, np.ones((10_000, 1, 1, 4)))
        code, _ = code_of(sequences.attention.Attend, many, timeout=PATIENCE)
        assert code in REFUSED | {StatusCode.OK}
        wide = attend_request(["there"], np.ones((1, 5)))
        assert code_of(sequences.attention.Attend, wide, timeout=PATIENCE)[0] in REFUSED
        assert list(sequences.describe("there").lengths) == [5]
        assert sequences.all_names() == ["there"]


# ---- appends that race with delete


@pytest.mark.parametrize(
    "method, message",
    [
        ("Create", b"\x0a\x04\x12\x02\xff\xfe"),  # sequences[0].name
        ("Create", b"\x0a\x7f"),  # longer than the message
        ("Append", b"\x0a\x02\xff\xfe"),
        ("Truncate", b"\x0a\x02\xff\xfe"),
        ("Fork", b"\x0a\x02\xff\xfe"),
        ("Describe", b"\x0a\x02\xff\xfe"),
        ("List", b"\x0a\x02\xff\xfe"),
        ("Delete", b"\x0a\x02\xff\xfe"),
        ("Export", b"\x0a\x02\xff\xfe"),
        ("Import", b"\x0a\x02\xff\xfe"),
    ],
)
def test_text_that_is_no_utf8_is_an_invalid_argument(start, method, message):
    server = start()
    with server.channel() as channel:
        code, said = code_of(
            channel.unary_unary(f"/attention.v1.KeyValueService/{method}"), message
        )
        assert code == StatusCode.INVALID_ARGUMENT and "UTF-8" in said, (code, said)


def test_appends_that_race_with_delete(start):
    server = start("--resident-memory-limit", "32MiB")
    over = threading.Event()
    failures, counts = [], {"appended": 0, "attended": 0, "deleted": 0}

    @contextlib.contextmanager
    def sequences_of_own():
        try:
            with server.channel() as channel:
                yield Sequences(channel)
        except Exception as error:
            failures.append(repr(error))

    def put(number):
        with sequences_of_own() as sequences:
            while not over.is_set():
                key = np.full((1, 70, 4), float(number))
                code, said = code_of(sequences.append, "racy", key, key)
                if code not in (StatusCode.OK, StatusCode.NOT_FOUND):
                    failures.append(f"append: {code} {said}")
                counts["appended"] += code == StatusCode.OK

    def attend():
        # Each query scores nothing, so the output is the mean of whole appends.
        with sequences_of_own() as sequences:
            while not over.is_set():
                try:
                    reply = sequences.attend(["racy"], np.zeros((1, 4)), return_weights=True)
                except grpc.RpcError as error:
                    if error.code() != StatusCode.NOT_FOUND:
                        failures.append(f"attend: {error.code()} {error.details()}")
                    continue
                counts["attended"] += 1
                output = np.frombuffer(reply.output.data, "<f4")
                appends = reply.weights.shape[1] / 70
                total = output[0] * appends
                if appends % 1 or abs(total - round(total)) > 1e-3 * max(1, total):
                    failures.append(f"half an append: {output}, {appends}")

    threads = [threading.Thread(target=put, args=(n,)) for n in (1, 2, 3)]
    threads += [threading.Thread(target=attend) for _ in range(2)]
    with server.channel() as channel:
        sequences = Sequences(channel)
        before = sequences.held_bytes()
        for thread in threads:
            thread.start()
        end = time.monotonic() + 3
        while time.monotonic() < end and not failures:
            with contextlib.suppress(grpc.RpcError):
                sequences.create("racy")
            time.sleep(0.003)
            fork = code_of(sequences.fork, "racy", new_name="fork")
            counts["deleted"] += sequences.delete("racy")
            if fork[0] == StatusCode.OK:
                counts["deleted"] += sequences.delete("fork")
        over.set()
        for thread in threads:
            thread.join()
        sequences.delete("racy")
        assert not failures, failures[:3]
        assert min(counts.values()) > 10, counts
        assert sequences.all_names() == []
        # Nobody reads any more: what was appended to what was deleted is gone, too.
        wait_until(lambda: sequences.held_bytes() == before, "memory is given back")


# ---- files


def test_paths_that_leave_the_folder(start, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "folder").mkdir()
    outside = tmp_path / "outside.safetensors"
    server = start("--resident-folder", str(folder))
    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("mine")
        sequences.append("mine", *rows(3))
        assert sequences.export_to("mine", "good").bytes > 0
        outside.write_bytes((folder / "good").read_bytes())
        for file in (
            "../outside.safetensors",
            str(outside),
            "./good",
            "folder/file",
            "..",
            ".",
            "",
            ".hidden",
            "good\0",
            "\0",
            "a\\b",
            "a" * 256,
            "%2e%2e%2foutside.safetensors",
            "~",
            "a\nb",
        ):
            for call in (sequences.export_to, sequences.import_from):
                arguments = ("mine", file) if call == sequences.export_to else (file, "new")
                code, said = code_of(call, *arguments)
                assert code == StatusCode.INVALID_ARGUMENT, (file, said)
                assert str(tmp_path) not in said.replace(file or "-", "")
        # A folder is no file, and a file that is cut off is no sequence.
        assert code_of(sequences.export_to, "mine", "folder")[0] != StatusCode.OK
        assert code_of(sequences.import_from, "folder", "new")[0] != StatusCode.OK
        good = (folder / "good").read_bytes()
        for length in (0, 1, 7, 8, 40, len(good) - 1):
            (folder / "cut").write_bytes(good[:length])
            code, said = code_of(sequences.import_from, "cut", "new")
            assert code in REFUSED, said
        assert sequences.all_names() == ["mine"]
        assert outside.read_bytes() == good
        assert {path.name for path in folder.iterdir()} == {"good", "folder", "cut"}
        sequences.import_from("good", "new")
        assert list(sequences.describe("new").lengths) == [3]


# ---- very many


def test_100_000_sequences_come_and_go(start):
    count, idle_seconds = 100_000, 10
    server = start("--resident-memory-limit", "1GiB")
    over = threading.Event()
    waited, failures = {"health": [], "attend": []}, []

    def others():
        """A probe, and a caller who attends."""
        with server.channel() as channel:
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            sequences = Sequences(channel)
            health(b"", timeout=PATIENCE)  # with the connection
            while not over.is_set():
                begin = time.monotonic()
                try:
                    health(b"", timeout=PATIENCE)
                    waited["health"].append(time.monotonic() - begin)
                    begin = time.monotonic()
                    sequences.attend(["stays"], np.ones((1, 4)))
                    waited["attend"].append(time.monotonic() - begin)
                except grpc.RpcError as error:
                    failures.append(f"{error.code()} {error.details()}")
                    return
                time.sleep(0.005)

    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("stays")
        sequences.append("stays", *rows(3))
        thread = threading.Thread(target=others)
        thread.start()
        try:
            begin = time.monotonic()
            made = []
            while len(made) < count:
                more = min(256, count - len(made))
                made += sequences.create(
                    *[""] * more, label="many", idle_limit_ms=idle_seconds * 1000
                )
            created = time.monotonic()
            listed = sequences.all_names(label="many")
            end = time.monotonic()
            assert listed == sorted(set(listed)) and set(listed) <= set(made)
            # All of them, unless some have expired by then.
            assert len(listed) == count or end - begin > idle_seconds
            wait_until(
                lambda: not sequences.list(label="many", page_size=1).sequences,
                "they expire",
            )
            gone = time.monotonic()
        finally:
            over.set()
            thread.join()
        assert not failures, failures
        assert sequences.all_names() == ["stays"]
        for name in (made[0], made[-1]):
            assert code_of(sequences.describe, name)[0] == StatusCode.NOT_FOUND
        figures = ", ".join(
            f"{what} {len(times)} times, {1000 * max(times):.1f} ms at most"
            for what, times in waited.items()
        )
        print(
            f"made in {created - begin:.1f} s, listed in {end - created:.1f} s, all gone "
            f"after {gone - begin:.1f} s; beside it {figures}; "
            f"{server.most_memory() >> 20} MiB at most"
        )
    assert server.is_running()
