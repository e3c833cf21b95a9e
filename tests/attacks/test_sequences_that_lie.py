"""Requests about sequences whose sizes, numbers and texts lie."""

import numpy as np
import pytest
from attacked_server import PATIENCE
from attention.v1 import attention_pb2 as pb
from grpc import StatusCode
from sequence_calls import HUGE, MIB, REFUSED, code_of, rows
from sequences import Sequences, attend_request, form


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


@pytest.mark.parametrize(
    "method, message",
    [
        ("Create", b"\x0a\x04\x12\x02\xff\xfe"),  # sequences[0].name
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


def test_a_field_longer_than_its_message_is_an_invalid_argument(start):
    server = start()
    with server.channel() as channel:
        create = channel.unary_unary("/attention.v1.KeyValueService/Create")
        code, said = code_of(create, b"\x0a\x7f")
        assert code == StatusCode.INVALID_ARGUMENT
        assert "sequences is cut or malformed" in said
