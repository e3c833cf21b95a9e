"""Bodies over HTTP that would take more than there is, or never come."""

import http.client
import json
import socket

import pytest
from attacked_server import PATIENCE
from grpc import StatusCode
from messages import SMALL
from polling import wait_until

MIB = 1 << 20
PATH = "/v2/models/scaled_dot_product_attention/infer"
GOOD = {
    "inputs": [
        {"name": name, "datatype": "FP32", "shape": [1, 1, 1], "data": [1]}
        for name in ("query", "key", "value")
    ]
}


def connect(server):
    connection = socket.create_connection(("127.0.0.1", server.http_port), PATIENCE)
    connection.settimeout(PATIENCE)
    return connection


def head(*headers):
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()


def status_of(connection):
    reply = b""
    while b"\r\n" not in reply:
        more = connection.recv(4096)
        assert more, "the server closed the connection without a word"
        reply += more
    return int(reply.split()[1])


def ask(server, body):
    """The status and the JSON of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=PATIENCE)
    try:
        connection.request("POST", PATH, body)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def assert_serves(server):
    assert ask(server, json.dumps(GOOD))[0] == 200
    assert server.call(SMALL) == StatusCode.OK


@pytest.mark.parametrize("expect", [(), ("Expect: 100-continue",)])
def test_a_body_of_4_gib_is_refused_before_it_comes(start, expect):
    server = start()
    with connect(server) as attacker:
        attacker.sendall(head(f"Content-Length: {1 << 32}", *expect))
        assert status_of(attacker) == 413
    assert_serves(server)


def test_chunks_without_an_end_are_refused_at_the_limit(start):
    server = start("--max-request-bytes", "1MiB", "--memory-limit", "256MiB")
    chunk = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))
    with connect(server) as attacker:
        attacker.sendall(head("Transfer-Encoding: chunked"))
        for _ in range(17):
            attacker.sendall(chunk)
        assert status_of(attacker) == 413
    assert_serves(server)
    assert server.most_memory() < 256 * MIB


def test_bodies_that_stop_in_the_middle_hold_up_nobody(start):
    server = start("--memory-limit", "512MiB")
    attackers = [connect(server) for _ in range(64)]
    try:
        for attacker in attackers:
            attacker.sendall(head(f"Content-Length: {16 * MIB}"))
            try:
                attacker.sendall(b" " * (8 * MIB))
            except ConnectionError:
                pass  # refused: one address has its share
        # What another address sends has room; so has what gRPC sends.
        assert server.call(SMALL) == StatusCode.OK
        assert server.most_memory() < 512 * MIB
    finally:
        for attacker in attackers:
            attacker.close()
    wait_until(lambda: ask(server, json.dumps(GOOD))[0] == 200, "room for a small body")


def test_idle_connections_hold_up_nobody(start):
    server = start()
    attackers = [connect(server) for _ in range(100)]
    try:
        for attacker in attackers:
            attacker.sendall(head("Content-Length: 10") + b"{")
        assert_serves(server)
    finally:
        for attacker in attackers:
            attacker.close()


def of_input(data, datatype="INT64", shape="[1]"):
    return (
        f'{{"inputs":[{{"name":"query","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}'
    )


@pytest.mark.parametrize(
    "body",
    [
        "[" * (8 * MIB),
        '{"x":' * MIB,
        '{"id":"' + "x" * (8 * MIB) + '"}',
        '{"id":' + "1" * (8 * MIB) + "}",
        of_input("[" * (8 * MIB)),
        of_input("[0" + ",0" * (4 * MIB) + "]"),
        of_input("[0" + ",0" * (4 * MIB) + "]", shape="[4194305]"),
        of_input("[]", shape="[" + "9999999999," * 10000 + "1]"),
        of_input("[]", shape="[9223372036854775807]"),
        '{"inputs":[' + ",".join(["{}"] * MIB) + "]}",
        '{"parameters":{' + ",".join(f'"{i}":1' for i in range(MIB)) + "}}",
    ],
    ids=[
        "arrays",
        "objects",
        "string",
        "number",
        "deep data",
        "elements",
        "elements of a shape",
        "extents",
        "a shape",
        "inputs",
        "parameters",
    ],
)
def test_json_that_grows_is_refused(start, body):
    server = start("--memory-limit", "1GiB")
    before = server.most_memory()
    status, reply = ask(server, body)
    assert status in (400, 413, 429), reply
    assert reply["error"]
    # The body, and elements of 8 bytes for each two of its characters.
    assert server.most_memory() - before < 6 * len(body) + 16 * MIB
    assert_serves(server)
