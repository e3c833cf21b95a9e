"""Sequences on a server: lost answers, servers that go, and files."""

import time

import grpc
import numpy as np
import pytest
from failing_server import FailingServer
from keys import HEADS, WIDTH, attend_with_keys, joined
from pages import ROOT
from safetensors.numpy import load_file, save_file

from attention_client import (
    Client,
    DeadlineExceededError,
    InvalidArgumentError,
    LocalServer,
    NotFoundError,
    SequenceLostError,
    UnavailableError,
    _channel,
    _messages,
)


@pytest.fixture
def sequence(client):
    with client.sequence(heads=HEADS, width=WIDTH, layers=2) as made:
        yield made


class Lost:
    """A method of a client whose next answer does not arrive."""

    def __init__(self, client, method, error=None):
        self._call = client._call
        self.method = method
        self._error = error or DeadlineExceededError("lost")
        client._call = self

    def __call__(self, method, *arguments):
        answer = self._call(method, *arguments)
        if method == self.method:
            self.method = None
            raise self._error
        return answer


def test_an_append_whose_answer_was_lost_is_repeated(client, sequence, rows, normal):
    first, second, query = rows(3), rows(1), normal(4, 1, WIDTH)
    Lost(client, _channel.APPEND)
    with pytest.raises(DeadlineExceededError):
        sequence.append(*first)
    assert len(sequence) == 0
    assert sequence.append(*first) == 3
    Lost(client, _channel.ATTEND)
    with pytest.raises(DeadlineExceededError):
        sequence.attend(query, append=second)
    output = sequence.attend(query, append=second).output
    assert sequence.describe().lengths == (4, 0)
    expected = attend_with_keys(client, query, joined(first, second))
    np.testing.assert_array_equal(output, expected)


def test_names_of_several_servers_have_one_deadline(client, monkeypatch):
    now, passed, given = time.monotonic, 0, []
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed)
    call = client._call

    def slow(method, request, timeout, metadata):
        nonlocal passed
        given.append(timeout)
        passed += 20
        return call(method, request, timeout, metadata)

    client._call = slow
    assert client.delete_sequences(["one/a", "other/a", "one/b"], timeout=30) == 0
    assert given[1] <= 10 < given[0] <= 30
    with pytest.raises(DeadlineExceededError):
        client.delete_sequences(["one/a", "other/a", "third/a"], timeout=30)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_what_nobody_can_name_is_not_left(rows, error):
    kind = type(error) if error else DeadlineExceededError
    with (
        LocalServer(resident_folder=True) as server,
        Client(server.target) as client,
        client.sequence(heads=HEADS, width=WIDTH) as sequence,
    ):
        sequence.append(*rows(3))
        sequence.export("file")
        for method, call in (
            (
                _channel.CREATE,
                lambda **name: client.sequence(heads=1, width=1, **name),
            ),
            (_channel.FORK, lambda **name: sequence.fork(length=1, **name)),
            (
                _channel.IMPORT,
                lambda **name: client.import_sequence("file", **name),
            ),
        ):
            Lost(client, method, error)
            with pytest.raises(kind):
                call()
            assert [one.name for one in client.sequences()] == [sequence.name]
            # One of a given name may have been there before.
            Lost(client, method, error)
            with pytest.raises(kind):
                call(name="given")
            client.open_sequence("given").delete()


def test_what_would_make_two_sequences_is_not_tried_again():
    calls = []

    def failing(name):
        def answer(_, context):
            calls.append(name)
            context.abort(grpc.StatusCode.UNAVAILABLE, "draining")

        return answer

    def describe(_, __):
        form = dict(heads=1, key_width=1, value_width=1, datatype=1)
        kind = _messages.message("attention.v1.SequenceDescription")
        return kind(name="one", form=form, lengths=[0]).SerializeToString()

    one = np.ones((1, 1), np.float32)
    keys = {name: failing(name) for name in ("Create", "Fork", "Import", "Append")}
    keys["Describe"] = describe
    with FailingServer(None, keys=keys) as fake, Client(fake.target) as client:
        sequence = client.open_sequence("one")
        for call in (
            lambda: client.sequence(heads=1, width=1),
            lambda: sequence.fork(),
            lambda: client.import_sequence("file"),
            lambda: sequence.append(one, one),
        ):
            with pytest.raises(UnavailableError):
                call()
    assert calls == ["Create", "Fork", "Import"] + 4 * ["Append"]


def test_a_failure_is_not_hidden_by_a_deletion_that_fails(rows):
    with (
        LocalServer() as server,
        Client(server.target) as client,
        pytest.raises(KeyError, match="mine"),
        client.sequence(heads=1, width=1),
    ):
        server.stop()
        raise KeyError("mine")


def test_a_sequence_that_went_with_its_server_is_lost(rows, normal):
    with LocalServer() as server:
        port = server.target.rpartition(":")[2]
        client = Client(server.target)
        sequence = client.sequence(heads=HEADS, width=WIDTH, name="gone")
        sequence.append(*rows(2))
    query = normal(4, 1, WIDTH)
    with client, LocalServer(grpc_port=port):
        for call in (
            lambda: sequence.append(*rows(1)),
            lambda: sequence.attend(query),
            lambda: client.attend_sequences([sequence], query[None]),
            lambda: sequence.describe(),
        ):
            with pytest.raises(
                SequenceLostError, match=r"'gone' is lost.*started anew"
            ):
                call()
        with pytest.raises(NotFoundError) as caught:
            client.open_sequence("gone")
        assert not isinstance(caught.value, SequenceLostError)


def test_a_file_keeps_a_sequence(rows, normal, tmp_path):
    key, value = rows(9)
    query = normal(4, 1, WIDTH)
    with (
        LocalServer(resident_folder=tmp_path) as server,
        Client(server.target) as client,
    ):
        with client.sequence(heads=HEADS, width=WIDTH) as sequence:
            sequence.append(key, value)
            expected = sequence.attend(query).output
            size = sequence.export("kept.safetensors")
        assert size == (tmp_path / "kept.safetensors").stat().st_size
        np.testing.assert_array_equal(
            load_file(tmp_path / "kept.safetensors")["key.0"], key
        )
        with client.import_sequence("kept.safetensors", name="again") as sequence:
            assert (sequence.name, len(sequence)) == ("again", 9)
            np.testing.assert_array_equal(sequence.attend(query).output, expected)
        with pytest.raises(NotFoundError) as caught:
            client.import_sequence("nothing")
        assert caught.value.field == "file"
        with pytest.raises(InvalidArgumentError, match="file"):
            client.import_sequence("../kept.safetensors")


def test_a_file_of_ones_own_is_as_the_page_says(rows, tmp_path):
    short, long = rows(3), rows(5)
    tensors = {
        f"{name}.{layer}": np.ascontiguousarray(array)
        for layer, kept in enumerate((long, short))
        for name, array in zip(("key", "value"), kept, strict=True)
    }
    metadata = {
        "format": "attention-sequence",
        "version": "1",
        "datatype": "FP32",
        "heads": str(HEADS),
        "key_width": str(WIDTH),
        "value_width": str(WIDTH),
        "layers": "2",
        "lengths": "5 3",
    }
    page = (ROOT / "docs/resident-keys.md").read_text()
    assert not [name for name in metadata if f"`{name}`" not in page]
    save_file(tensors, tmp_path / "own", metadata)
    with (
        LocalServer(resident_folder=tmp_path) as server,
        Client(server.target) as client,
        client.import_sequence("own") as sequence,
    ):
        assert sequence.lengths == (5, 3)
