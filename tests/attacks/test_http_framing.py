"""Requests of which two programs in a row would find two different ends (RFC 9112)."""

import pytest
from http_callers import connect, infer, read_all

HOST = "Host: 127.0.0.1"
# Where the head's framing is not understood, this is taken for a second request.
SMUGGLED = b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        [HOST, "Transfer-Encoding: gzip"],
        [HOST, "Transfer-Encoding: identity"],
        [HOST, "Transfer-Encoding: chunked, identity"],
        [HOST, "Transfer-Encoding: gzip, chunked"],
        [HOST, "Transfer-Encoding: unknown"],
        [HOST, "Transfer-Encoding:"],
        [HOST, "Transfer-Encoding: identity", "Transfer-Encoding: chunked"],
        [HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        [HOST, "Transfer-Encoding: chunked", "Content-Length: 5"],
        [HOST, "Content-Length: 5", "Content-Length: 6"],
        [HOST, "Content-Length: -5"],
        [HOST, HOST],
        [HOST, "Host: evil.example"],
        [],
    ],
    ids=lambda headers: ", ".join(headers) or "no Host",
)
def test_is_refused_and_closed(start, headers):
    server = start()
    with connect(server) as attacker:
        head = "\r\n".join(["POST /v2/nothing HTTP/1.1", *headers, "", ""])
        attacker.sendall(head.encode() + SMUGGLED)
        answer = read_all(attacker)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), answer
    assert answer.count(b"HTTP/1.1 ") == 1, "its body was answered"
    assert infer(server) == 200
