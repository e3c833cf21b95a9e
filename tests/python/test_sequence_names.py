"""Sequences by their names, and what is refused; on a server and in this process."""

import time

import numpy as np
import pytest
from keys import HEADS, WIDTH

from attention_client import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ParameterSet,
    SequenceLostError,
    _sequence_calls,
)
from attention_engine import Engine


def test_other_keys_at_a_place_that_is_taken_are_aborted(computing, sequence, rows):
    sequence.append(*rows(3))
    key, value = rows(1)
    sequence.append(key, value)
    with pytest.raises(AbortedError, match="there are 4 keys") as caught:
        sequence.append(key + 1, value, position=3)
    assert caught.value.field == "position"
    other = computing.open_sequence(sequence.name)
    other.append(*rows(2))
    with pytest.raises(AbortedError, match="there are 6 keys"):
        sequence.append(*rows(1))
    sequence.describe()
    assert sequence.append(key, value) == 7


def test_a_batch_that_fails_can_be_repeated(computing, rows, normal):
    one, other = (computing.sequence(heads=HEADS, width=WIDTH) for _ in range(2))
    computing.open_sequence(other.name).append(*rows(2))  # of which other knows nothing
    query = normal(2, 4, 1, WIDTH)
    step = [np.stack([part, part]) for part in rows(1)]
    with pytest.raises(AbortedError):
        computing.attend_sequences([one, other], query, append=step)
    assert one.lengths == (0,)
    assert computing.open_sequence(one.name).lengths == (1,)
    other.describe()
    computing.attend_sequences([one, other], query, append=step)
    assert (one.lengths, other.lengths) == ((1,), (3,))


def test_a_gap_is_out_of_range(sequence, rows, normal):
    with pytest.raises(OutOfRangeError, match="gap"):
        sequence.append(*rows(1), position=1)
    with pytest.raises(OutOfRangeError, match="gap"):
        sequence.attend(normal(4, 1, WIDTH), append=rows(1), position=1)


def test_mistakes_are_named_before_they_are_sent(computing, sequence, rows, normal):
    query = normal(4, 1, WIDTH)
    for call, message in (
        (lambda: sequence.append(*rows(1), layer=2), "layer: 2 .expected 0 to 1"),
        (lambda: sequence.append(*rows(1), layer=-1), "layer: -1"),
        (lambda: sequence.attend(query, append=query[0, 0, 0]), "append"),
        (lambda: sequence.attend(query, position=3), "position"),
        (lambda: computing.attend_sequences([], query), "sequences: none"),
        (
            lambda: computing.attend_sequences([sequence, "name"], query),
            r"sequences\[1\]: 'name' .expected what sequence",
        ),
        (lambda: computing.delete_sequences("name"), "names"),
        (
            lambda: computing.delete_sequences(["name", sequence]),
            r"names\[1\]: Sequence.* .expected text",
        ),
        (
            lambda: computing.delete_sequences(["\ud800"]),
            r"names\[0\]: '\\ud800' .expected text that UTF-8",
        ),
        (
            lambda: computing.sequence(heads=1, width=1, dtype="int16"),
            "dtype.*bfloat16",
        ),
        (lambda: computing.sequence(heads="x", width=1), "heads"),
        (lambda: sequence.fork(idle_limit=float("inf")), "idle_limit: inf"),
        (lambda: list(computing.sequences(label="a", label_prefix="b")), "label"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            call()


def test_a_taken_name_already_exists(computing):
    with computing.sequence(heads=1, width=1, name="taken") as sequence:
        with pytest.raises(AlreadyExistsError, match="taken"):
            computing.sequence(heads=1, width=1, name="taken")
        with pytest.raises(AlreadyExistsError) as caught:
            sequence.fork("taken")
        assert caught.value.field == "new_name"
        computing.open_sequence("taken")  # it is still there


@pytest.mark.parametrize("error", [DeadlineExceededError("late"), KeyboardInterrupt()])
@pytest.mark.parametrize("name", [None, "given"])
def test_what_fails_after_it_was_made_is_not_left(
    computing, sequence, tmp_path, monkeypatch, name, error
):
    def fail(_):
        raise error

    monkeypatch.setattr(_sequence_calls, "find", fail)
    calls = [lambda: sequence.fork(name, label="torn")]
    if isinstance(computing, Engine):  # the server has no folder for files
        file = tmp_path / "file"
        sequence.export(file)
        calls += [lambda: computing.import_sequence(file, name=name, label="torn")]
    for call in calls:
        with pytest.raises(type(error)):
            call()
        assert not list(computing.sequences(label="torn"))


def test_a_sequence_is_deleted_with_its_context(computing, rows, normal):
    with computing.sequence(heads=HEADS, width=WIDTH, name="kept") as sequence:
        sequence.append(*rows(3))
        with computing.open_sequence("kept") as opened:
            assert len(opened) == 3
        assert len(computing.open_sequence("kept")) == 3  # whoever opens leaves it
    for call in (
        lambda: computing.open_sequence("kept"),
        lambda: sequence.append(*rows(1)),
        lambda: sequence.attend(normal(4, 1, WIDTH)),
        lambda: sequence.fork(),
    ):
        with pytest.raises(NotFoundError, match="kept") as caught:
            call()
        assert not isinstance(caught.value, SequenceLostError)


def test_a_parameter_set_that_is_not_there_is_no_lost_sequence(sequence, normal):
    with pytest.raises(NotFoundError) as caught:
        sequence.attend(normal(4, 1, WIDTH), scoring=ParameterSet("nobody"))
    assert caught.value.field == "parameter_set"


def test_an_idle_sequence_expires(computing):
    sequence = computing.sequence(heads=1, width=1, idle_limit=0.001)
    with pytest.raises(NotFoundError, match=r"expired|no sequence"):
        for _ in range(600):
            sequence.describe()
            time.sleep(0.1)


def test_sequences_are_described(computing, rows):
    options = {"label": "described", "idle_limit": 90.5, "dtype": "float16"}
    with computing.sequence(heads=HEADS, width=WIDTH, layers=3, **options) as sequence:
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


def test_all_pages_are_listed(computing):
    made = [computing.sequence(heads=1, width=1, label="many", name="many")]
    made += [made[0].fork(length=0) for _ in range(1100)]
    with computing.sequence(heads=1, width=1, label="many more"):
        names = [one.name for one in computing.sequences(label="many")]
        assert len(list(computing.sequences(label_prefix="many"))) == 1102
        assert {"many", "many more"} <= {one.label for one in computing.sequences()}
    assert names == sorted(one.name for one in made)
    assert computing.delete_sequences(names) == 1101
    assert list(computing.sequences(label="many")) == []
