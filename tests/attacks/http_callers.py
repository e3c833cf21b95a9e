"""Callers over HTTP that keep to no rule, and a probe."""

import http.client
import json
import socket
import threading
import time

from attacked_server import PATIENCE

INFER = "/v2/models/scaled_dot_product_attention/infer"
ONES = json.dumps(
    {
        "inputs": [
            {"name": name, "datatype": "FP32", "shape": [1, 1, 1], "data": [1]}
            for name in ("query", "key", "value")
        ]
    }
)
# What a probe may take: 100 ms are meant, the rest is for a machine that is busy.
PROBE_TIME = 1  # second


def connect(server):
    connection = socket.create_connection(("127.0.0.1", server.http_port), PATIENCE)
    connection.settimeout(PATIENCE)
    return connection


def read_all(connection):
    """What comes until the server closes the connection."""
    read = b""
    try:
        while more := connection.recv(1 << 16):
            read += more
    except ConnectionError:
        pass
    return read


def ask(server, method, path, body=None, headers=None, timeout=PATIENCE):
    """The status, the headers and the body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


def infer(server, **headers):
    return ask(server, "POST", INFER, ONES, {"Content-Type": "application/json", **headers})[0]


def slowest_probe(server, probes=20):
    """Seconds; each on a connection of its own, as a kubelet does it."""
    slowest = 0
    for _ in range(probes):
        begin = time.monotonic()
        assert ask(server, "GET", "/v2/health/live")[0] == 200
        slowest = max(slowest, time.monotonic() - begin)
    return slowest


def pipelining(server, request, count=200):
    """An attack that sends `count` requests ahead, takes what comes, and does so again."""

    def again():
        with connect(server) as connection:
            connection.sendall(request * count)
            read_all(connection)

    return again


class Attack:
    """Runs `again` over and over, in so many threads, until it is left."""

    def __init__(self, again, threads=1):
        self._again = again
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self):
        while not self._over.is_set():
            try:
                self._again()
            except OSError:
                pass  # refused, or closed

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()
