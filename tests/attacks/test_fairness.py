"""Callers that connect anew for each call, beside one that keeps its connection."""

import contextlib
import http.client
import json
import threading
import time

import pytest
from attacked_server import PATIENCE

PATH = "/v2/models/additive_attention/infer"
LENGTH, HIDDEN = 512, 64
SECONDS = 3
NEWCOMERS = 8


def tensor(name, shape):
    size = 1
    for extent in shape:
        size *= extent
    return {"name": name, "datatype": "FP32", "shape": shape, "data": [0.5] * size}


# Some milliseconds of one thread, in few bytes.
BODY = json.dumps(
    {
        "inputs": [
            *(tensor(name, [1, LENGTH, 1]) for name in ("query", "key", "value")),
            tensor("w_q", [1, HIDDEN]),
            tensor("w_k", [1, HIDDEN]),
            tensor("w_v", [HIDDEN]),
        ]
    }
)


class Caller:
    def __init__(self, server, address):
        self._where = ("127.0.0.1", server.http_port)
        self._from = (address, 0)
        self._connection = None

    def connect(self):
        self.close()
        self._connection = http.client.HTTPConnection(
            *self._where, timeout=PATIENCE, source_address=self._from
        )

    def close(self):
        if self._connection is not None:
            self._connection.close()

    def ask(self):
        self._connection.request("POST", PATH, BODY)
        reply = self._connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text


@contextlib.contextmanager
def newcomers(server, address, answered):
    """So many at any time, each with a connection for each of its calls."""
    over = threading.Event()

    def call_anew():
        caller = Caller(server, address)
        while not over.is_set():
            caller.connect()
            caller.ask()
            answered.append(1)
        caller.close()

    threads = [threading.Thread(target=call_anew) for _ in range(NEWCOMERS)]
    for thread in threads:
        thread.start()
    try:
        while len(answered) < NEWCOMERS:
            time.sleep(0.01)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    "address, share", [("127.0.0.1", 1 / (NEWCOMERS + 1)), ("127.0.0.2", 1 / 2)]
)
def test_who_keeps_its_connection_has_its_share(start, address, share):
    server = start("--worker-threads", "1")
    stays = Caller(server, "127.0.0.1")
    stays.connect()
    stays.ask()
    others = []
    own = 0
    with newcomers(server, address, others):
        before = len(others)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            stays.ask()
            own += 1
        all_answered = own + len(others) - before
    stays.close()
    # It has one call at a time: between two of them others have the worker.
    assert own > share * all_answered / 3, (own, all_answered)
