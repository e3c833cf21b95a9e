"""Sequences in the caller's process: what an engine does that a server does not."""

import pickle
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from keys import HEADS, WIDTH, attend_with_keys
from test_engine_process import forked

from attention_client import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    SequenceLostError,
)
from attention_engine import Engine


@pytest.fixture
def own(engine):
    with engine.sequence(heads=HEADS, width=WIDTH) as made:
        yield made


def test_they_give_the_bits_of_a_server(client, engine, rows, normal):
    kept, step, query = rows(200), rows(1), normal(4, 1, WIDTH)
    answers = []
    for one in (client, engine):
        with one.sequence(heads=HEADS, width=WIDTH) as sequence:
            sequence.append(*kept)
            answers.append(sequence.attend(query, append=step, weights=True, lse=True))
    for name in ("output", "weights", "lse"):
        np.testing.assert_array_equal(*(getattr(one, name) for one in answers))


@pytest.mark.parametrize(
    "options, rows_of",
    [
        ({"causal": "sideways"}, None),
        ({"valid_lens": [99]}, None),
        ({"unknown": 1}, None),
        ({"key": 1}, None),
        ({"store": 1}, None),
        ({}, (3, WIDTH, WIDTH)),
        ({}, (HEADS, WIDTH, 3)),
        ({}, (HEADS, 3, WIDTH)),
    ],
)
def test_errors_are_those_of_a_server(client, engine, rows, normal, options, rows_of):
    errors = []
    for one in (client, engine):
        with one.sequence(heads=HEADS, width=WIDTH) as sequence:
            sequence.append(*rows(5))
            append = None
            if rows_of is not None:
                heads, key_width, value_width = rows_of
                append = normal(heads, 1, key_width), normal(heads, 1, value_width)
            with pytest.raises((InvalidArgumentError, TypeError)) as caught:
                sequence.attend(normal(4, 1, WIDTH), append=append, **options)
            assert sequence.describe().lengths == (5,)  # nothing was appended
            errors.append((type(caught.value), str(caught.value).partition(" (")[0]))
    assert errors[0] == errors[1]


def test_memory_has_a_limit(rows):
    with (
        Engine(threads=1, resident_memory_limit=1 << 20) as engine,
        engine.sequence(heads=HEADS, width=WIDTH) as sequence,
    ):
        with pytest.raises(ResourceExhaustedError, match="of 1048576 bytes"):
            sequence.append(*rows(10_000))
        assert sequence.append(*rows(10)) == 10
    with pytest.raises(InvalidArgumentError, match="resident_memory_limit: 0"):
        Engine(resident_memory_limit=0)


def test_a_call_that_fails_says_what_it_has_appended(own, rows, normal):
    with pytest.raises(DeadlineExceededError, match=r"; its own keys are appended$"):
        own.attend(normal(4, 1, WIDTH), append=rows(1000), timeout=0)
    assert own.describe().lengths == (1000,)
    # The memory is enough for one entry.
    key, query = normal(2, HEADS, 5000, WIDTH), normal(2, 4, 1, WIDTH)
    with Engine(threads=1, resident_memory_limit=1 << 20) as engine:
        made = [engine.sequence(heads=HEADS, width=WIDTH) for _ in key]
        with pytest.raises(ResourceExhaustedError) as caught:
            engine.attend_sequences(made, query, append=(key, key))
        assert [one.describe().lengths for one in made] == [(5000,), (0,)]
    assert caught.value.message.startswith("sequences.entries[1]: ")
    assert caught.value.message.endswith("; the entries before it are appended")


WITHOUT_MEMORY = """
import resource
import numpy as np
from attention_client import ResourceExhaustedError
from attention_engine import Engine

engine = Engine(threads=1)
sequence = engine.sequence(heads=1, width=8)
rows = np.zeros((1, 1 << 16, 8), np.float32)
query = rows[:, :1]
wide = np.zeros((1, 1 << 22, 8))
sequence.attend(query, append=(rows, rows))
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20),) * 2)
try:
    while True:
        sequence.attend(query, append=(rows, rows))
except ResourceExhaustedError:
    print("told")
try:
    engine.attend(wide, wide, wide)
except ResourceExhaustedError as error:
    print(error)
"""


def test_the_process_may_have_no_memory():
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout == "told\nquery: no memory to convert it\n", ended.stderr


def test_a_file_keeps_one(engine, own, rows, normal, tmp_path):
    query, path = normal(4, 1, WIDTH), tmp_path / "kept.safetensors"
    own.append(*rows(9))
    assert own.export(str(path)) == path.stat().st_size
    with engine.import_sequence(str(path)) as again:
        assert len(again) == 9
        np.testing.assert_array_equal(
            again.attend(query).output, own.attend(query).output
        )
    with pytest.raises(NotFoundError) as caught:
        engine.import_sequence(str(tmp_path / "nothing"))
    assert caught.value.field == "file"


def test_a_file_has_its_timeout(engine, own, rows, tmp_path):
    path = tmp_path / "kept.safetensors"
    own.append(*rows(9))
    with pytest.raises(DeadlineExceededError, match="not finished within 0 s"):
        own.export(path, timeout=0)
    assert not list(tmp_path.iterdir())
    own.export(path, timeout=60)
    with pytest.raises(DeadlineExceededError, match="not finished within 0 s"):
        engine.import_sequence(path, label="late", timeout=0)
    assert not list(engine.sequences(label="late"))
    engine.import_sequence(path, timeout=60).delete()


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), "5"])
def test_every_call_refuses_what_is_no_timeout(
    engine, own, rows, normal, tmp_path, timeout
):
    own.append(*rows(1))
    own.export(tmp_path / "kept")
    calls = {
        "sequence": partial(engine.sequence, heads=HEADS, width=WIDTH),
        "open_sequence": partial(engine.open_sequence, own.name),
        "import_sequence": partial(engine.import_sequence, tmp_path / "kept"),
        "sequences": lambda timeout: list(engine.sequences(timeout=timeout)),
        "delete_sequences": partial(engine.delete_sequences, []),
        "append": partial(own.append, *rows(1)),
        "attend": partial(own.attend, normal(4, 1, WIDTH)),
        "truncate": partial(own.truncate, 0),
        "fork": own.fork,
        "describe": own.describe,
        "export": partial(own.export, tmp_path / "other"),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidArgumentError, match=f"timeout: {timeout!r}"):
            call(timeout=timeout)
            pytest.fail(name)
    assert own.describe().lengths == (1,)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_file_may_be_a_path(engine, own, rows, tmp_path):
    path = tmp_path / "kept.safetensors"
    own.append(*rows(9))
    assert own.export(path) == path.stat().st_size
    with engine.import_sequence(path) as again:
        assert len(again) == 9


def test_a_file_has_no_nul_in_its_name(engine, own, rows, tmp_path):
    path = f"{tmp_path}/kept\0.safetensors"
    own.append(*rows(1))
    for call in (own.export, engine.import_sequence):
        with pytest.raises(InvalidArgumentError, match="without NUL") as caught:
            call(path)
        assert caught.value.field == "file"
    assert not list(tmp_path.iterdir())


def test_they_end_with_their_engine(rows):
    with Engine(threads=1) as engine:
        sequence = engine.sequence(heads=HEADS, width=WIDTH)
    with pytest.raises(FailedPreconditionError, match="closed"):
        sequence.append(*rows(1))


def test_a_pickled_engine_has_none(own, rows):
    own.append(*rows(1))
    copied = pickle.loads(pickle.dumps(own))
    with pytest.raises(SequenceLostError, match="another one"):
        copied.append(*rows(1))


def test_a_child_that_was_forked_is_told(engine, own):
    def append(outcome):
        try:
            own.append(*[np.ones((HEADS, 1, WIDTH), np.float32)] * 2)
        except FailedPreconditionError as error:
            outcome.put(error.message)

    assert "spawn" in forked(append)


def test_calls_send_no_metadata(own):
    with pytest.raises(TypeError, match="metadata"):
        own.describe(metadata={"traceparent": "00"})


def test_a_step_may_be_interleaved_by_other_threads(engine, rows, normal):
    """Each thread decodes a sequence of its own, beside the others."""
    steps, query = [rows(1) for _ in range(30)], normal(4, 1, WIDTH)
    joined = [np.concatenate(parts, axis=1) for parts in zip(*steps, strict=True)]
    expected = attend_with_keys(engine, query, joined)
    wrong = []

    def decode():
        with engine.sequence(heads=HEADS, width=WIDTH) as sequence:
            for step in steps:
                output = sequence.attend(query, append=step).output
            if not np.array_equal(output, expected):
                wrong.append(output)

    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_sequence_is_in_use_until_a_long_call_ends(engine, rows, normal):
    """However long it takes: the idle limit begins at its end."""
    limit, queries, taken = 2.0, 1000, 0.0
    while taken < limit:
        kept, query = rows(1000), normal(HEADS, queries, WIDTH)
        with engine.sequence(heads=HEADS, width=WIDTH, idle_limit=limit) as sequence:
            sequence.append(*kept)
            begin = time.monotonic()
            sequence.attend(query)
            taken = time.monotonic() - begin
            assert sequence.describe().lengths == (1000,)
        queries *= 2
