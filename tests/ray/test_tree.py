"""Servers that ask each other: what one server answers, they answer."""

import contextlib
import hashlib
import json
import logging
import os
import re
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from certificates import make_certificates
from many_servers import LOOPBACK, Servers
from waiting import stopped

from attention_client import (
    AttentionError,
    Client,
    DeadlineExceededError,
    NotFoundError,
    ResourceExhaustedError,
    Tls,
    UnauthenticatedError,
    UnavailableError,
    _channel,
    _messages,
    _request,
)
from attention_client.ray import tree

SERVERS, HEADS, WIDTH, SIZE = 12, 2, 16, 64
KEYS = SERVERS * SIZE
layer = _messages.message("attention.v1.SequenceLayer")


@pytest.fixture(scope="module")
def servers():
    with Servers(SERVERS, **LOOPBACK) as made:
        yield made


@pytest.fixture
def sharded(servers, normal):
    made = servers.sequence(HEADS, WIDTH, SIZE)
    made.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
    servers.forget()
    return made


@pytest.fixture
def whole(one_server):
    with one_server.sequence(heads=HEADS, width=WIDTH) as made:
        random = np.random.default_rng(seed=1)
        rows = [random.normal(size=(HEADS, KEYS, WIDTH)) for _ in range(2)]
        made.append(*(array.astype(np.float32) for array in rows))
        yield made


def assert_same(answer, expected):
    np.testing.assert_allclose(answer.output, expected.output, rtol=0, atol=1e-6)
    np.testing.assert_allclose(answer.lse, expected.lse, rtol=1e-6, atol=1e-6)


OPTIONS = {
    "none": {},
    "causal": {"causal": True, "query_offset": KEYS - 70},
    "window": {"causal": "bottom_right", "window": (KEYS - 10, 0)},
    "lengths": {"valid_lens": [KEYS - 30]},
    "lengths of rows": {"valid_lens": [[1, KEYS, 64, 65, 0]]},
    "softcap": {"softcap": 1.5, "scale": 0.3},
    "sinks": {"sinks": np.array([1, -1, 2, 0.5], np.float32)},
    "mask": {"attend_mask": np.arange(KEYS) % 3 > 0},
    "bias": {"bias": np.sin(np.arange(KEYS)).astype(np.float32)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_answers_are_those_of_one_server(servers, sharded, whole, normal, options):
    query = normal(4, 5, WIDTH)
    answer = sharded.attend(query, lse=True, **options)
    assert_same(answer, whole.attend(query, lse=True, **options))
    assert answer.servers > tree.MOST_ASKED
    few = len(tree.groups(range(answer.servers)))
    assert servers.trees() == servers.asked() == few


def test_of_several_ranges_at_each_server(servers, one_server, normal):
    keys = 2 * KEYS - 30
    rows = normal(HEADS, keys, WIDTH), normal(HEADS, keys, WIDTH)
    sharded = servers.sequence(HEADS, WIDTH, SIZE, ranges=2 * SERVERS)
    sharded.append(*rows)
    query = normal(4, 3, WIDTH)
    options = {"lse": True, "sinks": normal(4), "attend_mask": np.arange(keys) % 5 > 0}
    with one_server.sequence(heads=HEADS, width=WIDTH) as whole:
        whole.append(*rows)
        expected = whole.attend(query, **options)
    servers.forget()
    assert_same(sharded.attend(query, **options), expected)
    assert servers.asked() == len(tree.groups(range(SERVERS)))


def test_answers_that_a_worker_merges(servers, sharded, whole, normal):
    query = normal(4, 600, WIDTH)  # 12 answers of 150 KiB
    answer = sharded.attend(query, lse=True)
    assert_same(answer, whole.attend(query, lse=True))


def test_a_step_appends_at_the_tail_and_asks_the_others_in_a_tree(
    servers, one_server, normal
):
    keys = KEYS - 20
    rows = normal(HEADS, keys, WIDTH), normal(HEADS, keys, WIDTH)
    sharded = servers.sequence(HEADS, WIDTH, SIZE)
    sharded.append(*rows)
    with one_server.sequence(heads=HEADS, width=WIDTH) as whole:
        whole.append(*rows)
        for _ in range(3):
            new = normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH)
            step = {"append": new, "causal": "bottom_right", "lse": True}
            query = normal(4, 1, WIDTH)
            servers.forget()
            assert_same(sharded.attend(query, **step), whole.attend(query, **step))
            assert servers.asked() == servers.trees() + 1


def test_bfloat16_within_a_rounding_of_each_level(servers, one_server, normal):
    rows = [normal(HEADS, KEYS, WIDTH).astype(ml_dtypes.bfloat16) for _ in range(2)]
    sharded = servers.sequence(HEADS, WIDTH, SIZE, dtype="bfloat16")
    sharded.append(*rows)
    query = normal(4, 3, WIDTH).astype(ml_dtypes.bfloat16)
    with one_server.sequence(heads=HEADS, width=WIDTH, dtype="bfloat16") as whole:
        whole.append(*rows)
        expected = whole.attend(query).output.astype(np.float32)
    answer = sharded.attend(query).output
    assert answer.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(answer.astype(np.float32), expected, rtol=0, atol=0.01)


def test_few_servers_are_asked_by_the_client(one_server, normal):
    with Servers(3, **LOOPBACK) as few:
        sharded = few.sequence(HEADS, WIDTH, SIZE)
        sharded.append(normal(HEADS, 192, WIDTH), normal(HEADS, 192, WIDTH))
        few.forget()
        sharded.attend(normal(4, 1, WIDTH))
        assert few.trees() == 0
        assert few.asked() == 3


@pytest.mark.parametrize("count", [9, 16, 64, 300])
def test_trees_have_all_servers_and_no_more_than_one_may_ask(count):
    made = tree.groups(range(count))
    assert sorted(one for group in made for one in group) == list(range(count))
    assert max(map(len, made)) <= 65


# What goes wrong.


def wait_until(condition):
    """Each look takes its time."""
    for _ in range(3000):
        if condition():
            return
    raise AssertionError("it does not happen")


def read(sharded, **options):
    return sharded.attend(np.ones((4, 1, WIDTH), np.float32), **options)


def test_servers_without_peers_are_asked_by_the_client(normal, caplog):
    with Servers(SERVERS) as servers, caplog.at_level(logging.WARNING):
        sharded = servers.sequence(HEADS, WIDTH, SIZE)
        sharded.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        servers.forget()
        assert read(sharded).servers == SERVERS
        servers.forget()
        assert read(sharded).servers == SERVERS
        assert (servers.trees(), servers.asked()) == (0, SERVERS)
    (told,) = [one for one in caplog.records if one.name == "attention_client.ray"]
    assert "--peers" in told.getMessage()


def test_servers_that_lack_the_method_are_asked_by_the_client(
    servers, sharded, monkeypatch
):
    for client in servers.clients:
        missing = client._channel.unary_unary("/attention.v1.ShardService/Missing")
        monkeypatch.setitem(client._unary, _channel.ATTEND_SHARDS, missing)
    monkeypatch.setattr(servers, "_trees", tree.Trees())
    read(sharded)
    servers.forget()
    assert read(sharded).servers == SERVERS
    assert (servers.trees(), servers.asked()) == (0, SERVERS)


def test_who_is_no_peer_is_not_called(servers, sharded, normal):
    (first, *others) = servers.clients
    with Servers(1, peers=f"127.0.0.1:1,{others[0].target}") as one:
        made = one.sequence(HEADS, WIDTH, SIZE)
        made.append(normal(HEADS, SIZE, WIDTH), normal(HEADS, SIZE, WIDTH))
        other = sharded._map.ranges[1].replicas[0].name
        name = made._map.ranges[0].replicas[0].name
        ask = one.clients[0]

        def asked(target):
            data = shards(name, [(target, other)])
            return ask._call(_channel.ATTEND_SHARDS, data, None, None)

        asked(others[0].target)
        for target in (
            others[1].target,
            "localhost:1",
            "unix:/tmp/socket",
            f"dns:///{others[0].target}",
            "127.0.0.1:1:8001",
            "127.0.0.1:99999",
            "",
        ):
            with pytest.raises(AttentionError, match="--peers") as refused:
                asked(target)
            assert refused.value.code.name == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("entry", "is_allowed"),
    [
        ("127.0.0.0/8:*", True),
        ("[::1]:*", False),
        ("126.0.0.0/8:*", False),
        ("127.0.0.1/32:*", True),
        ("localhost:*", False),
        ("127.0.0.2:*", False),
    ],
)
def test_networks_have_addresses(servers, sharded, normal, entry, is_allowed):
    with Servers(1, peers=entry, insecure=True) as one:
        made = one.sequence(HEADS, WIDTH, SIZE)
        made.append(normal(HEADS, SIZE, WIDTH), normal(HEADS, SIZE, WIDTH))
        names = [of._map.ranges[0].replicas[0].name for of in (made, sharded)]
        data = shards(names[0], [(servers.clients[0].target, names[1])])

        def asked():
            one.clients[0]._call(_channel.ATTEND_SHARDS, data, None, None)

        if is_allowed:
            asked()
        else:
            with pytest.raises(AttentionError, match="is none of this server's"):
                asked()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"peers": "127.0.0.1"}, "HOST:PORT"),
        ({"peers": "127.0.0.1:70000"}, "HOST:PORT"),
        ({"peers": "127.0.0.0/33:*"}, "HOST:PORT"),
        ({"peers": "http://a:1"}, "HOST:PORT"),
        ({"peers": "10.1.0.0/16:*"}, "without encryption"),
        ({"peers": "elsewhere:*"}, "without encryption"),
        ({"peers_ca": "ca.pem"}, "expected --peers and --tls-certificate"),
    ],
)
def test_flags_that_do_not_fit_stop_the_start(flags, message):
    with pytest.raises(RuntimeError, match=message):
        Servers(1, **flags)


def test_a_server_that_dies_is_named(normal):
    with Servers(SERVERS, **LOOPBACK) as servers:
        sharded = servers.sequence(HEADS, WIDTH, SIZE)
        sharded.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        dead = servers.servers[5]
        os.kill(dead.pid, signal.SIGKILL)
        # It is not the one that is called.
        parts = zip(servers.clients, sharded._map.ranges, strict=True)
        (_, first), *others = [(c.target, p.replicas[0].name) for c, p in parts]
        data = shards(first, others)
        with pytest.raises(UnavailableError) as failed:
            servers.clients[0]._call(_channel.ATTEND_SHARDS, data, None, None)
        assert failed.value.server == dead.target
        assert dead.target in str(failed.value)
        # The map has nothing newer: then each is asked, and it does not answer either.
        with pytest.raises(UnavailableError):
            read(sharded)


def test_a_server_that_hangs_costs_the_deadline_and_no_more(servers, sharded):
    read(sharded)
    with stopped(servers.servers[7].pid), pytest.raises(DeadlineExceededError):
        read(sharded, timeout=0.5)
    for server in servers.servers:
        wait_until(lambda of=server: figure(of, IN_FLIGHT) == 0)
    servers.forget()
    assert read(sharded).servers == SERVERS
    assert servers.trees() > 0


def test_keys_that_are_not_there_are_told_as_of_one_server(servers, sharded):
    replica = sharded._map.ranges[9].replicas[0]
    servers._client(replica.node).delete_sequences([replica.name])
    with pytest.raises(NotFoundError, match=replica.name):
        read(sharded)


def test_a_server_that_ends_does_not_wait_for_others(servers, sharded, normal):
    slow = servers.servers[3]
    with Servers(1, **LOOPBACK, drain_time="0s") as one, ThreadPoolExecutor(1) as pool:
        made = one.sequence(HEADS, WIDTH, SIZE)
        made.append(normal(HEADS, SIZE, WIDTH), normal(HEADS, SIZE, WIDTH))
        names = [
            of.ranges[n].replicas[0].name
            for of, n in ((made._map, 0), (sharded._map, 3))
        ]
        data = shards(names[0], [(slow.target, names[1])])
        call = one.clients[0]._call
        call(_channel.ATTEND_SHARDS, data, None, None)
        with stopped(slow.pid):
            waits = pool.submit(call, _channel.ATTEND_SHARDS, data, None, None)
            wait_until(lambda: figure(one.servers[0], STARTED) == 2)
            os.kill(one.servers[0].pid, signal.SIGTERM)
            with pytest.raises(UnavailableError, match="drain"):
                waits.result(60)


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
            wait_until(lambda of=server: figure(of, IN_FLIGHT) == 0)
            assert figure(server, STARTED) == 1
            assert figure(server, PARTS) == 2
            assert figure(server, APPENDS) == 2
            log = server.log()
            assert log.count('attend_part id="it"') == 2
            (line,) = re.findall(r'attend_shards id="it".*', log)
            assert f"trace={TRACE}" in line
            assert "status=OK" in line


TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
IN_FLIGHT = "attention_requests_in_flight "
PARTS = (
    'attention_requests_total{api="attention.v1",'
    'model="scaled_dot_product_attention",code="OK"}'
)
APPENDS = 'attention_requests_total{api="attention.v1",model="append",code="OK"}'


def test_answers_of_others_are_counted_before_they_come(servers, normal):
    with Servers(1, **LOOPBACK, memory_limit="16MiB") as one:
        made = one.sequence(HEADS, WIDTH, SIZE)
        made.append(normal(HEADS, SIZE, WIDTH), normal(HEADS, SIZE, WIDTH))
        name = made._map.ranges[0].replicas[0].name
        common = _request.encode_common(normal(1, 8, 2048, WIDTH), {"lse": True})
        few, many = (
            tree.request(common, [("", [own(name)]), *others])
            for others in ([], [(servers.clients[0].target, [own(name)])] * 8)
        )
        one.clients[0]._call(_channel.ATTEND_SHARDS, few, None, None)
        servers.forget()
        with pytest.raises(ResourceExhaustedError, match="memory_limit"):
            one.clients[0]._call(_channel.ATTEND_SHARDS, many, None, None)


# Who asks.


def callers_file(folder, **tokens):
    file = folder / "callers.json"
    callers = [
        {"name": name, "tokens_sha256": [hashlib.sha256(token.encode()).hexdigest()]}
        for name, token in tokens.items()
    ]
    file.write_text(json.dumps({"callers": callers}))
    return file


def test_others_are_asked_in_the_callers_name(tmp_path, normal):
    flags = {"callers_file": callers_file(tmp_path, one="first", two="second")}
    with Servers(SERVERS, {"token": "first"}, **LOOPBACK, **flags) as servers:
        sharded = servers.sequence(HEADS, WIDTH, SIZE)
        sharded.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        servers.forget()
        assert read(sharded).servers == SERVERS
        assert servers.trees() > 0
        names = [part.replicas[0].name for part in sharded._map.ranges]
        target = servers.clients[0].target
        with Client(target, token="second") as other:
            own = other.sequence(heads=HEADS, width=WIDTH)
            own.append(normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH))
            data = shards(own.name, [(servers.clients[1].target, names[1])])
            with pytest.raises(NotFoundError, match=names[1]):
                other._call(_channel.ATTEND_SHARDS, data, None, None)
        with Client(target) as unknown, pytest.raises(UnauthenticatedError):
            unknown._call(_channel.ATTEND_SHARDS, data, None, None)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_flags(folder):
    return {
        "tls_certificate": folder / "server.pem",
        "tls_key": folder / "server.key",
        "tls_client_ca": folder / "ca.pem",
        **LOOPBACK,
    }


@contextlib.contextmanager
def tls_servers(folder, peers_ca, normal):
    """Servers that know each other by this authority, and a sequence on all of them."""
    caller = Tls(*(folder / f for f in ("ca.pem", "caller.pem", "caller.key")))
    flags = {**tls_flags(folder), "peers_ca": folder / peers_ca}
    with Servers(SERVERS, {"tls": caller}, **flags) as servers:
        sharded = servers.sequence(HEADS, WIDTH, SIZE)
        sharded.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        servers.forget()
        yield servers, sharded


def test_over_tls_they_show_each_other_their_certificates(certificates, normal):
    with tls_servers(certificates, "ca.pem", normal) as (servers, sharded):
        assert read(sharded).servers == SERVERS
        assert servers.trees() > 0


def test_a_server_that_another_authority_signed_gets_no_query(certificates, normal):
    with tls_servers(certificates, "other.pem", normal) as (servers, sharded):
        # The client reaches them all.
        assert read(sharded).servers == SERVERS
        assert servers.trees() > 0
        servers.forget()
        assert read(sharded).servers == SERVERS
        assert servers.trees() == 0


def test_tls_needs_to_know_who_signs(certificates):
    with pytest.raises(RuntimeError, match="--peers-ca"):
        Servers(1, **tls_flags(certificates))


# Requests that no client makes.


def shards(name, others=(), **options):
    query = np.ones((1, HEADS, 1, WIDTH), np.float32)
    common = _request.encode_common(query, {"lse": True, **options})
    parts = [("", [own(name)]), *((target, [own(at)]) for target, at in others)]
    return tree.request(common, parts)


def own(name):
    return _request.encode_own([layer(name=name)], {})


def nested(name, levels):
    shard = tree._shard("127.0.0.1:1", [own(name)])
    for _ in range(levels):
        above = tree._shard("127.0.0.1:1", [own(name)])
        above.add_message(tree._SHARD["shards"], shard)
        shard = above
    message = tree._of(b"")
    message.add_message(tree._REQUEST["shard"], shard)
    return message.join()


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
    "no sequence": (lambda _: shards("missing"), "NOT_FOUND", "missing"),
}


@pytest.mark.parametrize(("data", "code", "message"), WRONG.values(), ids=WRONG)
def test_requests_that_are_wrong(servers, sharded, data, code, message):
    if callable(data):
        data = data(sharded._map.ranges[0].replicas[0].name)
    with pytest.raises(AttentionError, match=message) as wrong:
        servers.clients[0]._call(_channel.ATTEND_SHARDS, data, None, None)
    assert wrong.value.code.name == code
