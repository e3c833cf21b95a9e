"""What tests of trees share: requests as no client makes them, a server's figures."""

import re
import urllib.request

import numpy as np

from attention_client import _messages, _request
from attention_client.ray import tree

SERVERS, HEADS, WIDTH, SIZE = 12, 2, 16, 64
KEYS = SERVERS * SIZE

_layer = _messages.message("attention.v1.SequenceLayer")
_sequences = _messages.message("attention.v1.Sequences")
IN_FLIGHT = "attention_requests_in_flight "
STARTED = (
    'grpc_server_started_total{grpc_type="unary",'
    'grpc_service="attention.v1.ShardService",grpc_method="Attend"}'
)


def figure(server, name):
    page = re.search(r"http://\S+?:\d+", server.log())[0] + "/metrics"
    with urllib.request.urlopen(page) as answer:
        lines = answer.read().decode().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if line.startswith(name)]
    return sum(map(float, values))


def read(sharded, **options):
    return sharded.attend(np.ones((4, 1, WIDTH), np.float32), **options)


def shards(name, others=(), **options):
    query = np.ones((1, HEADS, 1, WIDTH), np.float32)
    common = _request.encode_common(query, {"lse": True, **options})
    parts = [("", [own(name)]), *((target, [own(at)]) for target, at in others)]
    return tree.request(common, parts)


def own(name):
    return _request.encode_own(
        _sequences(entries=[_layer(name=name)]).SerializeToString(), {}
    )


def nested(name, levels):
    shard = tree._shard("127.0.0.1:1", [own(name)])
    for _ in range(levels):
        above = tree._shard("127.0.0.1:1", [own(name)])
        above.add_message(tree._SHARD["shards"], shard)
        shard = above
    message = tree._of(b"")
    message.add_message(tree._REQUEST["shard"], shard)
    return message.join()
