"""Keys and values that stay on the server."""

import json
import time

import grpc
import ml_dtypes
import numpy as np
import pytest
from failing_server import FailingServer
from safetensors.numpy import load_file

from attention_client import (
    AbortedError,
    AlreadyExistsError,
    Client,
    DeadlineExceededError,
    InvalidArgumentError,
    LocalServer,
    NotFoundError,
    OutOfRangeError,
    ParameterSet,
    SequenceLostError,
    UnavailableError,
    _channel,
    _messages,
    cli,
    quantize,
)

HEADS, WIDTH = 2, 8


@pytest.fixture
def rows(normal):
    """rows(n): n keys and values."""
    return lambda n: (normal(HEADS, n, WIDTH), normal(HEADS, n, WIDTH))


@pytest.fixture
def sequence(client):
    with client.sequence(heads=HEADS, width=WIDTH, layers=2) as made:
        yield made


def joined(*parts):
    return [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]


def attend_with_keys(client, query, rows, **options):
    key, value = rows
    return client.attend(query[None], key[None], value[None], **options).output[0]


def test_integers_are_appended_as_the_sequences_datatype(client, sequence, normal):
    rows, query = np.arange(HEADS * 3 * WIDTH).reshape(HEADS, 3, WIDTH), normal(4, 1, 8)
    assert sequence.append(rows.tolist(), rows) == 3
    wide = rows.astype(np.float32)
    np.testing.assert_array_equal(
        sequence.attend(query).output,
        attend_with_keys(client, query, (wide, wide)),
    )


def test_answers_are_those_of_keys_that_are_sent(client, sequence, rows, normal):
    first, second, query = rows(100), rows(3), normal(4, 5, WIDTH)
    assert sequence.append(*first) == 100
    assert sequence.append(*second) == 103
    result = sequence.attend(query, weights=True, lse=True, top_k=2)
    expected = attend_with_keys(client, query, joined(first, second))
    np.testing.assert_array_equal(result.output, expected)
    assert result.weights.shape == (4, 5, 103)
    assert result.lse.shape == (4, 5)
    assert result.top_k_indices.shape == (4, 5, 2)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_keys_with_scales_stay_with_them(client, rows, normal, dtype):
    first, step, query = rows(100), rows(3), normal(4, 3, WIDTH)
    with client.sequence(heads=HEADS, width=WIDTH, dtype=dtype) as sequence:
        # As quantize() gives them, or as numbers that are quantized here.
        assert sequence.append(*(quantize(part, dtype) for part in first)) == 100
        answer = sequence.attend(query, append=step).output
        (key, key_scale), (value, value_scale) = (
            quantize(part, dtype) for part in joined(first, step)
        )
        scales = {"key_scale": key_scale[None], "value_scale": value_scale[None]}
        expected = attend_with_keys(client, query, (key, value), **scales)
        np.testing.assert_array_equal(answer, expected)
        assert sequence.describe().form.datatype == dtype
        assert sequence.append(*step, position=100) == 103  # the same again


def test_scales_are_where_the_datatype_has_them(client, sequence, rows):
    key, value = rows(3)
    with client.sequence(heads=HEADS, width=WIDTH, dtype="int8") as scaled:
        bare, _ = quantize(key)
        with pytest.raises(InvalidArgumentError, match="key_scale: missing"):
            scaled.append(bare, value)
        with pytest.raises(InvalidArgumentError, match="value: row .* holds NaN"):
            scaled.append(key, np.full_like(value, np.nan))
        with pytest.raises(InvalidArgumentError, match="key: no pair"):
            scaled.append((key, key, key), value)
        assert len(scaled) == 0


def test_several_sequences_of_int8_append_at_once(client, rows, normal):
    options = {"heads": HEADS, "width": WIDTH, "dtype": "int8"}
    with client.sequence(**options) as a, client.sequence(**options) as b:
        key, value = normal(2, HEADS, 1, WIDTH), normal(2, HEADS, 1, WIDTH)
        query = normal(2, 4, 1, WIDTH)
        both = client.attend_sequences([a, b], query, append=(key, value)).output
        for n, one in enumerate((a, b)):
            np.testing.assert_array_equal(one.attend(query[n]).output, both[n])


def test_options_are_those_of_attend(client, sequence, rows, normal):
    kept, query = rows(20), normal(4, 5, WIDTH)
    sequence.append(*kept)
    for options in (
        {"causal": "bottom_right", "window": (3, 0)},
        {"softcap": 0.5, "scale": 2.0},
        {"sinks": normal(4), "alibi_slopes": normal(4), "valid_lens": [7]},
        {"attend_mask": normal(5, 20) > 0, "bias": normal(4, 1, 20)},
        {"causal": True, "query_offset": 15},
    ):
        np.testing.assert_array_equal(
            sequence.attend(query, **options).output,
            attend_with_keys(client, query, kept, **options),
        )


def test_a_step_of_a_decoder_is_one_call(client, sequence, rows, normal):
    kept = rows(10)
    sequence.append(*kept)
    for _ in range(3):
        step, query = rows(1), normal(4, 1, WIDTH)
        options = {"causal": "bottom_right"}
        output = sequence.attend(query, append=step, **options).output
        kept = joined(kept, step)
        expected = attend_with_keys(client, query, kept, **options)
        np.testing.assert_array_equal(output, expected)
    assert sequence.lengths == (13, 0)


def test_layers_have_keys_of_their_own(client, sequence, rows, normal):
    query, layers = normal(4, 1, WIDTH), [rows(3), rows(5)]
    for layer, kept in enumerate(layers):
        sequence.append(*kept, layer=layer)
    for layer, kept in enumerate(layers):
        np.testing.assert_array_equal(
            sequence.attend(query, layer).output, attend_with_keys(client, query, kept)
        )
    assert sequence.lengths == (3, 5)
    assert len(sequence) == 3


def test_fewer_dimensions_are_one_head(client, normal):
    key, value, query = normal(9, WIDTH), normal(9, 3), normal(4, WIDTH)
    with client.sequence(heads=1, width=WIDTH, value_width=3) as sequence:
        sequence.append(key, value)
        result = sequence.attend(query, lse=True)
        expected = client.attend(query, key, value, lse=True)
        np.testing.assert_array_equal(result.output, expected.output)
        np.testing.assert_array_equal(result.lse, expected.lse)
        four = sequence.attend(query[None, None], lse=True)
        np.testing.assert_array_equal(four.output, expected.output[None, None])
        assert four.lse.shape == (1, 1, 4)
        with pytest.raises(InvalidArgumentError) as caught:
            sequence.append(key[0], value[0])
        assert caught.value.field == "key"


@pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, "float16"])
def test_keys_are_converted_to_the_sequences_datatype(client, rows, normal, dtype):
    key, value = rows(20)
    query = normal(4, 3, WIDTH)
    kind = np.dtype(dtype)
    with client.sequence(heads=HEADS, width=WIDTH, dtype=dtype) as sequence:
        assert sequence.form.datatype == kind.name
        sequence.append(key.astype(np.float64), value)
        rounded = key.astype(kind), value.astype(kind)
        for asked in (query, query.astype(kind)):
            output = sequence.attend(asked).output
            assert output.dtype == asked.dtype
            expected = attend_with_keys(client, asked, rounded)
            np.testing.assert_array_equal(output, expected)


def test_keys_that_would_not_be_rounded_are_refused(sequence):
    small = np.ones((HEADS, 1, WIDTH), np.int8)
    with pytest.raises(InvalidArgumentError) as caught:
        sequence.append(small, small)
    assert caught.value.field == "key"


def test_a_batch_has_sequences_of_different_lengths(client, rows, normal):
    kept = [rows(n) for n in (3, 70, 1)]
    query = normal(3, 4, 2, WIDTH)
    made = [client.sequence(heads=HEADS, width=WIDTH) for _ in kept]
    for sequence, pair in zip(made, kept, strict=True):
        sequence.append(*pair)
    step = normal(3, HEADS, 2, WIDTH), normal(3, HEADS, 2, WIDTH)
    for append in (None, step):
        if append is not None:
            new = zip(*append, strict=True)
            kept = [joined(*pairs) for pairs in zip(kept, new, strict=True)]
        options = {"causal": "bottom_right"}
        output = client.attend_sequences(made, query, append=append, **options).output
        for n, pair in enumerate(kept):
            expected = attend_with_keys(client, query[n], pair, **options)
            np.testing.assert_array_equal(output[n], expected)
    assert [len(sequence) for sequence in made] == [5, 72, 3]
    assert client.delete_sequences(sequence.name for sequence in made) == 3


def test_a_packed_batch_appends_as_many_keys_as_queries(client, rows, normal):
    made = [client.sequence(heads=HEADS, width=WIDTH) for _ in range(2)]
    key, value, query = (normal(5, heads, WIDTH) for heads in (HEADS, HEADS, 4))
    output = client.attend_sequences(
        made, query, append=(key, value), query_starts=[0, 2, 5], causal="bottom_right"
    ).output
    assert [len(sequence) for sequence in made] == [2, 3]
    expected = client.attend(
        query, key, value, query_starts=[0, 2, 5], key_starts=[0, 2, 5], causal=True
    ).output
    np.testing.assert_array_equal(output, expected)
    client.delete_sequences(sequence.name for sequence in made)


def test_a_fork_goes_its_own_way(client, sequence, rows, normal):
    kept, query = rows(70), normal(4, 1, WIDTH)
    sequence.append(*kept)
    sequence.append(*kept, layer=1)
    with sequence.fork() as whole, sequence.fork("short", 2, label="l") as short:
        assert (len(whole), len(short), short.name) == (70, 2, "short")
        assert short.describe().label == "l"
        assert short.describe().lengths == (2, 2)
        one, other = rows(1), rows(2)
        whole.append(*one)
        sequence.append(*other)
        for forked, added in ((whole, one), (sequence, other)):
            expected = attend_with_keys(client, query, joined(kept, added))
            np.testing.assert_array_equal(forked.attend(query).output, expected)
    assert sequence.lengths == (72, 70)


def test_truncate_keeps_the_first_keys(client, sequence, rows, normal):
    key, value = rows(9)
    query = normal(4, 1, WIDTH)
    for layer in range(2):
        sequence.append(key, value, layer)
    sequence.truncate(4)
    assert sequence.lengths == (4, 4)
    expected = attend_with_keys(client, query, (key[:, :4], value[:, :4]))
    np.testing.assert_array_equal(sequence.attend(query).output, expected)
    with pytest.raises(OutOfRangeError) as caught:
        sequence.truncate(5)
    assert caught.value.field == "length"
    assert isinstance(caught.value, IndexError)


class Lost:
    """A method of a client whose next answer does not arrive."""

    def __init__(self, client, method):
        self._call = client._call
        self.method = method
        client._call = self

    def __call__(self, method, *arguments):
        answer = self._call(method, *arguments)
        if method == self.method:
            self.method = None
            raise DeadlineExceededError("lost")
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


def test_other_keys_at_a_place_that_is_taken_are_aborted(client, sequence, rows):
    sequence.append(*rows(3))
    key, value = rows(1)
    sequence.append(key, value)
    with pytest.raises(AbortedError, match="there are 4 keys") as caught:
        sequence.append(key + 1, value, position=3)
    assert caught.value.field == "position"
    other = client.open_sequence(sequence.name)
    other.append(*rows(2))
    with pytest.raises(AbortedError, match="there are 6 keys"):
        sequence.append(*rows(1))
    sequence.describe()
    assert sequence.append(key, value) == 7


def test_a_gap_is_out_of_range(sequence, rows, normal):
    with pytest.raises(OutOfRangeError, match="gap"):
        sequence.append(*rows(1), position=1)
    with pytest.raises(OutOfRangeError, match="gap"):
        sequence.attend(normal(4, 1, WIDTH), append=rows(1), position=1)


def test_mistakes_are_named_before_they_are_sent(client, sequence, rows, normal):
    query = normal(4, 1, WIDTH)
    for call, message in (
        (lambda: sequence.append(*rows(1), layer=2), "layer: 2 .expected 0 to 1"),
        (lambda: sequence.append(*rows(1), layer=-1), "layer: -1"),
        (lambda: sequence.attend(query, append=query[0, 0, 0]), "append"),
        (lambda: sequence.attend(query, position=3), "position"),
        (lambda: client.attend_sequences([], query), "sequences: none"),
        (lambda: client.delete_sequences("name"), "names"),
        (lambda: client.sequence(heads=1, width=1, dtype="int16"), "dtype.*bfloat16"),
        (lambda: client.sequence(heads="x", width=1), "heads"),
        (lambda: sequence.fork(idle_limit=float("inf")), "idle_limit: inf"),
        (lambda: list(client.sequences(label="a", label_prefix="b")), "label"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            call()


def test_a_taken_name_already_exists(client):
    with client.sequence(heads=1, width=1, name="taken") as sequence:
        with pytest.raises(AlreadyExistsError, match="taken"):
            client.sequence(heads=1, width=1, name="taken")
        with pytest.raises(AlreadyExistsError) as caught:
            sequence.fork("taken")
        assert caught.value.field == "new_name"


def test_a_sequence_is_deleted_with_its_context(client, rows, normal):
    with client.sequence(heads=HEADS, width=WIDTH, name="kept") as sequence:
        sequence.append(*rows(3))
        with client.open_sequence("kept") as opened:
            assert len(opened) == 3
        assert len(client.open_sequence("kept")) == 3  # whoever opens leaves it
    for call in (
        lambda: client.open_sequence("kept"),
        lambda: sequence.append(*rows(1)),
        lambda: sequence.attend(normal(4, 1, WIDTH)),
        lambda: sequence.fork(),
    ):
        with pytest.raises(NotFoundError, match="kept") as caught:
            call()
        assert not isinstance(caught.value, SequenceLostError)


def test_a_failure_is_not_hidden_by_a_deletion_that_fails(rows):
    with LocalServer() as server, Client(server.target) as client:
        with pytest.raises(KeyError, match="mine"):
            with client.sequence(heads=1, width=1):
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
            with pytest.raises(SequenceLostError, match="'gone' is lost.*started anew"):
                call()
        with pytest.raises(NotFoundError) as caught:
            client.open_sequence("gone")
        assert not isinstance(caught.value, SequenceLostError)


def test_a_parameter_set_that_is_not_there_is_no_lost_sequence(sequence, normal):
    with pytest.raises(NotFoundError) as caught:
        sequence.attend(normal(4, 1, WIDTH), scoring=ParameterSet("nobody"))
    assert caught.value.field == "parameter_set"


def test_an_idle_sequence_expires(client):
    sequence = client.sequence(heads=1, width=1, idle_limit=0.001)
    with pytest.raises(NotFoundError, match="expired|no sequence"):
        for _ in range(600):
            sequence.describe()
            time.sleep(0.1)


def test_sequences_are_described(client, rows):
    options = {"label": "described", "idle_limit": 90.5, "dtype": "float16"}
    with client.sequence(heads=HEADS, width=WIDTH, layers=3, **options) as sequence:
        sequence.append(*rows(5), layer=1)
        described = sequence.describe()
    assert described.name == sequence.name
    assert described.label == "described"
    assert described.form == sequence.form
    assert (described.form.key_width, described.form.layers) == (WIDTH, 3)
    assert described.lengths == (0, 5, 0)
    assert described.bytes >= 2 * 5 * HEADS * WIDTH * 2
    assert described.idle_limit_ms == 90_500
    assert described.idle_ms < 60_000
    assert described.incarnation == sequence.incarnation


def test_all_pages_are_listed(client):
    made = [client.sequence(heads=1, width=1, label="many", name="many")]
    made += [made[0].fork(length=0) for _ in range(1100)]
    with client.sequence(heads=1, width=1, label="many more"):
        names = [one.name for one in client.sequences(label="many")]
        assert len(list(client.sequences(label_prefix="many"))) == 1102
        assert {"many", "many more"} <= {one.label for one in client.sequences()}
    assert names == sorted(one.name for one in made)
    assert client.delete_sequences(names) == 1101
    assert list(client.sequences(label="many")) == []


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


def test_the_shell_has_them(rows, capsys, tmp_path):
    with (
        LocalServer(resident_folder=tmp_path) as server,
        Client(server.target) as client,
    ):

        def shell(*arguments):
            code = cli.main(["--server", server.target, "sequences", *arguments])
            return code, *capsys.readouterr()

        sequence = client.sequence(heads=HEADS, width=WIDTH, name="one", label="l")
        sequence.append(*rows(3))
        code, said, _ = shell("list", "--label", "l")
        assert code == 0
        size = sequence.describe().bytes
        assert said == f"one\tl\t3 keys\tfloat32\t{size} bytes\n"
        code, said, _ = shell("describe", "one")
        assert json.loads(said)["lengths"] == [3]
        said = shell("export", "one", "file")[1]
        assert said == f"{(tmp_path / 'file').stat().st_size} bytes\n"
        assert shell("import", "file", "--name", "two")[1] == "two\n"
        assert shell("delete", "one", "two", "three")[1] == "2 deleted\n"
        code, _, complaint = shell("describe", "one")
        assert code == 1
        assert "NOT_FOUND" in complaint
