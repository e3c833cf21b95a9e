"""The engine among threads, processes and signals, and its settings."""

import multiprocessing
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from attention_client import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
)
from attention_engine import Engine

SMALL = [np.ones((3, 4), np.float32)] * 3
# Some thousand times what a test may take, for one thread.
LONG = [np.broadcast_to(np.float32(1), (1, 400_000, 8))] * 3


def attend_in_a_child(engine, outcome):
    try:
        engine.attend(*SMALL)
    except FailedPreconditionError as error:
        outcome.put(error.message)


def forked(function, *arguments):
    """What the function puts into a queue, in a forked child that then ends."""
    context = multiprocessing.get_context("fork")
    outcome = context.Queue()
    child = context.Process(target=function, args=(*arguments, outcome))
    child.start()
    try:
        return outcome.get(timeout=60)
    finally:
        child.join(10)
        child.kill()  # where it hangs
        child.join()


def test_other_threads_run_while_it_computes():
    x = np.ones((1, 8192, 64), np.float32)
    out = np.full_like(x, np.nan)
    with Engine(threads=1) as engine:
        call = threading.Thread(
            target=engine.attend, args=(x, x, x), kwargs={"out": out}
        )
        call.start()
        while np.isnan(out[0, 0, 0]):
            assert call.is_alive() or not np.isnan(out[0, 0, 0])
        seen_half_done = np.isnan(out[0, -1, -1])
        call.join()
    assert seen_half_done
    np.testing.assert_allclose(out, 1, rtol=1e-6)


DAEMON = """
import threading
import numpy as np
from attention_engine import Engine
x = np.ones((1, 1000, 64), np.float32)
engine, begun = Engine(threads=1), threading.Event()
def loop():
    while True:
        engine.attend(x, x, x)
        begun.set()
threading.Thread(target=loop, daemon=True).start()
begun.wait()
"""


def test_a_program_ends_while_a_daemon_computes():
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_one_thread_is_the_callers():
    program = """
import os
import numpy as np
from attention_engine import Engine

x = np.ones((1, 8, 64, 64), np.float32)
with Engine(threads=1) as engine:
    before = len(os.listdir("/proc/self/task"))
    engine.attend(x, x, x)
    print(len(os.listdir("/proc/self/task")) - before)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "0\n"


def test_many_threads_may_call_at_once(engine, normal):
    inputs = [normal(2, 4, length, 16) + length for length in range(1, 65, 4)]
    expected = [engine.attend(x, x, x, causal=True).output for x in inputs]
    wrong = []

    def call(first):
        for n in range(40):
            i = (first + n) % len(inputs)
            x = inputs[i]
            found = engine.attend(x, x, x, causal=True).output
            if not np.array_equal(found, expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_deadline_is_a_timeout(engine):
    with pytest.raises(DeadlineExceededError, match=r"not finished within 0\.1 s"):
        engine.attend(*LONG, timeout=0.1)
    with pytest.raises(DeadlineExceededError, match="within -1 s"):
        engine.attend(*SMALL, timeout=-1)
    with pytest.raises(InvalidArgumentError, match="timeout: nan"):
        engine.attend(*SMALL, timeout=float("nan"))


def test_a_mask_that_is_repeated_is_looked_at_once(engine):
    length = 1 << 22
    x = np.broadcast_to(np.float32(1), (1, length, 8))
    mask = np.broadcast_to(np.True_, (1, length, length))
    with pytest.raises(DeadlineExceededError):
        engine.attend(x, x, x, attend_mask=mask, timeout=0.1)


def test_other_threads_run_while_a_mask_is_looked_at():
    """One corrects the mask's last element, before it is reached."""
    keys = 1 << 24
    query = np.ones((1, 1, 8), np.float32)
    x = np.broadcast_to(np.float32(1), (1, keys, 8))
    mask = np.ones((1, 1, 2 * keys), np.uint8)[..., ::2]
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)  # nobody takes the interpreter: it is given
    try:
        with Engine(threads=1) as engine:
            for _ in range(20):  # a busy machine may have it reached first
                mask[..., -1] = 2
                begun = threading.Event()

                def correct(begun=begun):
                    begun.wait()
                    mask[..., -1] = 1

                corrects = threading.Thread(target=correct)
                corrects.start()
                begun.set()
                try:
                    output = engine.attend(query, x, x, attend_mask=mask).output
                    break
                except InvalidArgumentError:
                    corrects.join()
            else:
                pytest.fail("the interpreter was not given away")
    finally:
        sys.setswitchinterval(before)
    np.testing.assert_allclose(output, 1, rtol=1e-6)


def test_lengths_that_change_meanwhile_change_nothing():
    # 4,096 rows; a length beyond the keys would be read beyond the tensors.
    x = np.ones((1, 4096, 64), np.float32)
    lengths = np.full(1, 4096)
    out = np.full_like(x, np.nan)
    with Engine(threads=1) as engine:
        call = threading.Thread(
            target=engine.attend,
            args=(x, x, x),
            kwargs={"out": out, "valid_lens": lengths},
        )
        call.start()
        while call.is_alive() and np.isnan(out[0, 0, 0]):
            pass
        lengths[:] = 1 << 40
        call.join()
    np.testing.assert_allclose(out, 1, rtol=1e-6)


def test_a_child_that_was_forked_is_told(engine):
    engine.attend(*SMALL)
    assert "spawn" in forked(attend_in_a_child, engine)

    def make(outcome):
        try:
            Engine()
        except FailedPreconditionError as error:
            outcome.put(error.message)

    assert "spawn" in forked(make)
    assert engine.attend(*SMALL).output.shape == (3, 4)


FORKING = """
import os, signal, sys
import numpy as np
from attention_engine import Engine

engine = Engine(threads=2)
engine.attend(*[np.ones((1, 512, 64), np.float32)] * 3)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(60)  # ends a child that hangs
del engine
"""


def test_a_forked_child_ends():
    subprocess.run([sys.executable, "-c", FORKING], check=True)


AFTER_A_MISTAKE = """
import os, sys
import numpy as np
from attention_client import AttentionError
from attention_engine import Engine

try:
    Engine(**{sys.argv[1]: sys.argv[2]})
except AttentionError:
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    Engine(threads=1).attend(*[np.ones((3, 4), np.float32)] * 3)
"""


# The second is made where there is a device.
@pytest.mark.parametrize(
    "mistake",
    [("backend", "abacus"), ("backend", "cuda"), ("resident_memory_limit", "abacus")],
)
def test_an_engine_that_was_not_made_leaves_forks_alone(mistake):
    command = [sys.executable, "-c", AFTER_A_MISTAKE, *mistake]
    subprocess.run(command, check=True, timeout=60)


def test_settings_are_pickled():
    made = pickle.loads(pickle.dumps(Engine(threads=2, backend="reference")))
    assert repr(made) == "Engine(threads=2, backend='reference')"
    result = made.attend(*SMALL)
    assert result.backend == "reference"
    assert made.info().worker_threads == 2


def test_a_closed_engine_says_so():
    with Engine(threads=1) as engine:
        engine.attend(*SMALL)
    with pytest.raises(FailedPreconditionError, match="closed"):
        engine.attend(*SMALL)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"threads": -1}, r"threads: -1 \(expected 0, one for each processor"),
        ({"threads": 5000}, "threads: 5000"),
        ({"threads": 2.0}, r"threads: 2\.0 \(expected 0, one for"),
        ({"threads": "2"}, r"threads: '2' \(expected 0, one for"),
        ({"threads": 2**70}, f"threads: {2**70} "),
        ({"backend": "abacus"}, "backend: 'abacus'"),
        ({"backend": None}, r"backend: None \(expected a str"),
        ({"resident_memory_limit": 1e9}, r"resident_memory_limit: 1000000000\.0 \("),
        ({"resident_memory_limit": 2**70}, f"resident_memory_limit: {2**70} "),
    ],
)
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(InvalidArgumentError, match=said):
        Engine(**settings)


def test_without_threads_the_engine_says_so():
    program = """
import os, resource
import numpy, attention_client
from attention_client import ResourceExhaustedError
from attention_engine import Engine

Engine(threads=1).close()  # which imports the rest
if os.geteuid() == 0:  # whom the limit does not bind
    os.setgid(65532)
    os.setuid(65532)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    Engine(threads=3)
except ResourceExhaustedError as error:
    print(error.message)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout.startswith("threads: "), ended.stderr
    assert "2 threads" in ended.stdout


def test_threads_are_made_with_the_engine():
    program = """
import os
from attention_engine import Engine

before = len(os.listdir("/proc/self/task"))
with Engine(threads=4):
    print(len(os.listdir("/proc/self/task")) - before)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "3\n"


def test_info_tells_of_backends_and_threads(engine):
    info = engine.info()
    assert [backend.name for backend in info.backends][-2:] == ["cpu", "reference"]
    assert info.worker_threads == 2
    assert info.version
