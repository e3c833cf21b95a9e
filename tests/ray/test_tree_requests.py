"""Requests to servers that ask others: how they are counted, and what is wrong."""

import re

import pytest
from counted import Servers
from many_servers import LOOPBACK
from polling import wait_until
from tree_requests import (
    HEADS,
    IN_FLIGHT,
    SIZE,
    STARTED,
    WIDTH,
    figure,
    nested,
    own,
    shards,
)

from attention_client import AttentionError, ResourceExhaustedError, _channel, _request
from attention_client.ray import tree

TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
PARTS = (
    'attention_requests_total{api="attention.v1",'
    'model="scaled_dot_product_attention",code="OK"}'
)
APPENDS = 'attention_requests_total{api="attention.v1",model="append",code="OK"}'


def test_a_call_and_its_parts_are_counted_and_logged(normal):
    with Servers(2, **LOOPBACK, log_level="debug") as two:
        made = two.sequence(HEADS, WIDTH, SIZE, ranges=4)
        made.append(normal(HEADS, 256, WIDTH), normal(HEADS, 256, WIDTH))
        names = [part.replicas[0].name for part in made._map.ranges]
        data = tree.request(
            _request.encode_common(normal(1, 4, 1, WIDTH), {"lse": True, "id": "it"}),
            [
                ("", [own(names[0]), own(names[2])]),
                (two.clients[1].target, [own(names[1]), own(names[3])]),
            ],
        )
        two.clients[0]._call(_channel.ATTEND_SHARDS, data, None, {"traceparent": TRACE})
        for server in two.servers:
            # The reply is out before the call has ended.
            wait_until(
                lambda of=server: figure(of, IN_FLIGHT) == 0, "no call is under way"
            )
            assert figure(server, STARTED) == 1
            assert figure(server, PARTS) == 2
            assert figure(server, APPENDS) == 2
            log = server.log()
            assert log.count('attend_part id="it"') == 2
            (line,) = re.findall(r'attend_shards id="it".*', log)
            assert f"trace={TRACE}" in line
            assert "status=OK" in line


def test_answers_of_others_are_counted_before_they_come(servers, normal):
    with Servers(1, **LOOPBACK, memory_limit="16MiB") as one:
        made = one.sequence(HEADS, WIDTH, SIZE)
        made.append(normal(HEADS, SIZE, WIDTH), normal(HEADS, SIZE, WIDTH))
        name = made._map.ranges[0].replicas[0].name
        common = _request.encode_common(normal(1, 8, 2048, WIDTH), {"lse": True})
        few, many = (
            tree.request(common, [("", [own(name)]), *others])
            for others in (
                [],
                [(other.target, [own(name)]) for other in servers.clients[:8]],
            )
        )
        one.clients[0]._call(_channel.ATTEND_SHARDS, few, None, None)
        servers.forget()
        with pytest.raises(ResourceExhaustedError, match="memory_limit"):
            one.clients[0]._call(_channel.ATTEND_SHARDS, many, None, None)


WRONG = {
    "no message": (b"\x0a\xff", "INVALID_ARGUMENT", "are not an AttendShardsRequest"),
    "unknown": (b"\x1a\x00", "INVALID_ARGUMENT", "field 3 of AttendShardsRequest"),
    "no parts": (b"\x12\x00", "INVALID_ARGUMENT", "shard.parts: none"),
    "unknown within": (b"\x12\x02\x22\x00", "INVALID_ARGUMENT", "field 4 of Shard"),
    "no lse": (
        lambda name: shards(name, lse=False),
        "INVALID_ARGUMENT",
        "return_lse: not the only result",
    ),
    "weights": (
        lambda name: shards(name, weights=True),
        "INVALID_ARGUMENT",
        "return_lse: not the only result",
    ),
    "uniform": (
        lambda name: shards(name, empty_rows="uniform"),
        "INVALID_ARGUMENT",
        "empty_rows",
    ),
    "deep": (lambda name: nested(name, 5), "INVALID_ARGUMENT", "more than 4 levels"),
    "wide": (
        lambda name: shards(name, [("127.0.0.1:1", name)] * 65),
        "RESOURCE_EXHAUSTED",
        "more than 64",
    ),
    "twice": (
        lambda name: shards(name, [("127.0.0.1:1", name)] * 2),
        "INVALID_ARGUMENT",
        "target '127.0.0.1:1' twice",
    ),
    "no sequence": (lambda _: shards("missing"), "NOT_FOUND", "missing"),
}


@pytest.mark.parametrize(("data", "code", "message"), WRONG.values(), ids=WRONG)
def test_requests_that_are_wrong(servers, sharded, data, code, message):
    if callable(data):
        data = data(sharded._map.ranges[0].replicas[0].name)
    with pytest.raises(AttentionError, match=message) as wrong:
        servers.clients[0]._call(_channel.ATTEND_SHARDS, data, None, None)
    assert wrong.value.code.name == code
