"""An engine's calls and the signals of its process: how they end, and what waits."""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from test_engine_process import LONG

from attention_engine import Engine


def send_once_it_computes(number, out):
    """Sends a signal to the main thread when the first row of `out` is there."""

    def send():
        while np.isnan(out[0, 0, 0]):
            pass
        signal.pthread_kill(threading.main_thread().ident, number)

    threading.Thread(target=send, daemon=True).start()


@pytest.fixture
def ctrl_c():
    """Python's own handler: what a shell runs in its background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_call(threads):
    warm = [np.ones((4, 200, 64), np.float32)] * 3
    with Engine(threads=threads) as engine:
        for _ in range(6):
            for _ in range(20):  # whose threads still look for more
                engine.attend(*warm)
            out = np.full(LONG[0].shape, np.nan, np.float32)
            send_once_it_computes(signal.SIGINT, out)
            with pytest.raises(KeyboardInterrupt) as caught:
                engine.attend(*LONG, out=out, timeout=10)
            # Not where the error of the timeout is made.
            assert caught.traceback[-1].name == "attend"


def interrupt(work, is_begun):
    """Sends Ctrl-C to the main thread when the work there has begun."""

    def send():
        while not is_begun():
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    with pytest.raises(KeyboardInterrupt):
        sender.start()
        work()
        while True:
            sender.join()  # the work has ended before


# Files are made larger until they take longer than the time between two looks.
ROWS = np.zeros((1, 1 << 16, 512), np.float32)
SIZES = range(5)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_export(tmp_path):
    with Engine(threads=1) as engine:
        sequence = engine.sequence(heads=1, width=512)
        for _ in SIZES:
            sequence.append(ROWS, ROWS)
            interrupt(
                lambda: sequence.export(tmp_path / "kept"),
                lambda: any(tmp_path.iterdir()),
            )
            if not any(tmp_path.iterdir()):
                break
            (tmp_path / "kept").unlink()
        else:
            pytest.fail("every export ended first")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_import(tmp_path):
    with Engine(threads=1) as engine:
        sequence = engine.sequence(heads=1, width=512)
        for _ in SIZES:
            sequence.append(ROWS, ROWS)
            sequence.export(tmp_path / "kept")
            interrupt(
                # Of a given name, which is not deleted once it is whole.
                lambda: engine.import_sequence(
                    tmp_path / "kept", name="read", label="read"
                ),
                lambda: any(engine.sequences(label="read")),
            )
            if engine.delete_sequences(["read"]) == 0:
                break
        else:
            pytest.fail("every import ended first")


WAITING = """
import signal, sys, threading
import numpy as np
from attention_client import DeadlineExceededError
from attention_engine import Engine

threads = int(sys.argv[1])
engine = Engine(threads=threads)
x = np.broadcast_to(np.float32(1), (1, 400_000, 8))
for _ in range(threads):
    out = np.full(x.shape, np.nan, np.float32)
    threading.Thread(target=engine.attend, args=(x, x, x), kwargs={"out": out},
                     daemon=True).start()
    while np.isnan(out[0, 0, 0]):
        pass
"""


def run_beside_long_calls(program, threads):
    """What a program says while as many calls as the engine has threads compute."""
    return subprocess.run(
        [sys.executable, "-c", WAITING + program, str(threads)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_that_waits_for_others_has_its_deadline(threads):
    ended = run_beside_long_calls(
        """
try:
    engine.attend(x, x, x, timeout=0.1)
except DeadlineExceededError as error:
    print(error.message)
""",
        threads,
    )
    assert "not finished within 0.1 s" in ended.stdout, ended.stderr


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_call_that_waits_for_others(threads):
    ended = run_beside_long_calls(
        """
over = threading.Event()
def interrupt(number, frame):
    if frame.f_code.co_name == "attend":
        raise KeyboardInterrupt
def send():
    while not over.wait(0.05):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
signal.signal(signal.SIGINT, interrupt)
threading.Thread(target=send, daemon=True).start()
try:
    engine.attend(x, x, x)
except KeyboardInterrupt:
    over.set()
    print("ended")
""",
        threads,
    )
    assert ended.stdout == "ended\n", ended.stderr


NESTED = """
import signal, sys, threading
import numpy as np
from attention_engine import Engine

engine = Engine(threads=int(sys.argv[1]))
x = np.ones((1, 16384, 64), np.float32)
out = np.full_like(x, np.nan)
def send():
    while np.isnan(out[0, 0, 0]):
        pass
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
small = x[:, :500]
signal.signal(
    signal.SIGUSR1,
    lambda *_: print(engine.attend(small, small, small).output.min(),
                     np.isnan(out).any()))
threading.Thread(target=send).start()
engine.attend(x, x, x, out=out)
print(np.isnan(out).any())
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signals_handler_may_call_the_engine(threads):
    said = subprocess.run(
        [sys.executable, "-c", NESTED, str(threads)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout == "1.0 True\nFalse\n", said.stderr


def test_a_signals_handler_runs_while_it_computes():
    x = np.ones((1, 8192, 64), np.float32)
    out = np.full_like(x, np.nan)
    half_done = []
    before = signal.signal(
        signal.SIGUSR1, lambda *_: half_done.append(np.isnan(out[0, -1, -1]))
    )
    try:
        send_once_it_computes(signal.SIGUSR1, out)
        with Engine(threads=1) as engine:
            engine.attend(x, x, x, out=out)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert half_done == [True]
    np.testing.assert_allclose(out, 1, rtol=1e-6)
