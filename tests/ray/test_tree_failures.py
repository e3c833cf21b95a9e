"""Servers that ask each other, where one of them dies, hangs, or refuses."""

import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from counted import Servers
from many_servers import LOOPBACK
from polling import wait_until
from tree_requests import (
    HEADS,
    IN_FLIGHT,
    KEYS,
    SERVERS,
    SIZE,
    STARTED,
    WIDTH,
    figure,
    read,
    shards,
)
from waiting import stopped

from attention_client import (
    DeadlineExceededError,
    NotFoundError,
    UnavailableError,
    _channel,
)
from attention_client.ray import tree


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
        wait_until(lambda of=server: figure(of, IN_FLIGHT) == 0, "no call is under way")
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
            wait_until(lambda: figure(one.servers[0], STARTED) == 2, "both have begun")
            os.kill(one.servers[0].pid, signal.SIGTERM)
            with pytest.raises(UnavailableError, match="drain"):
                waits.result(60)
