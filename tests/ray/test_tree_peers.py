"""Whom a server asks, and in whose name."""

import contextlib
import hashlib
import json

import pytest
from certificates import make_certificates
from counted import Servers
from many_servers import LOOPBACK
from tree_requests import HEADS, KEYS, SERVERS, SIZE, WIDTH, read, shards

from attention_client import (
    AttentionError,
    Client,
    NotFoundError,
    Tls,
    UnauthenticatedError,
    _channel,
)


def test_who_is_no_peer_is_not_called(servers, sharded, normal):
    (_, *others) = servers.clients
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
