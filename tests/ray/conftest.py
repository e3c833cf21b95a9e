"""A Ray cluster on this machine, and servers on its nodes."""

import os
import signal
import threading

import compared
import numpy as np
import pytest
import ray
from checked import Checked
from counted import Servers
from many_servers import LOOPBACK
from ray.cluster_utils import Cluster
from tree_requests import HEADS, KEYS, SERVERS, SIZE, WIDTH
from waiting import wait_for_nodes

from attention_client import Client, LocalServer
from attention_client.ray import AttentionCluster, tree

NODES = 4
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="whole nodes are killed, too")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        chosen = [item for item in items if item.get_closest_marker("long") is None]
        config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
        items[:] = chosen


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; with --long alone")


@pytest.fixture(scope="session")
def ray_cluster():
    # The head runs no server, so that it is never the node that is killed.
    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(NODES):
            made.add_node(**NODE)
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="session")
def cluster(ray_cluster):
    with AttentionCluster(NODES, flags={"worker_threads": 1}) as made:
        yield made


@pytest.fixture(scope="session")
def one_server():
    with LocalServer(worker_threads=1) as server, Client(server.target) as client:
        yield client


@pytest.fixture
def normal():
    """normal(shape...): random numbers, the same in every run."""
    random = np.random.default_rng(seed=1)
    return lambda *shape: random.normal(size=shape).astype(np.float32)


@pytest.fixture
def kill():
    """kill(report): ends a node's server as a crash does."""
    return lambda report: os.kill(report.pid, signal.SIGKILL)


@pytest.fixture(params=["flat", "tree"])
def asking(request, monkeypatch):
    """The client asks all servers itself, or few, which ask the others."""
    monkeypatch.setattr(tree, "MOST_ASKED", 1 if request.param == "tree" else NODES + 1)


class Running:
    """A call that a thread makes again and again, until the context ends."""

    def __init__(self, call):
        self._call = call
        self._done = 0
        self._changed = threading.Condition()
        self._is_ending = False
        self._failure = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        self.wait_for(3)
        return self

    def __exit__(self, *_):
        self._is_ending = True
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_for(self, calls):
        """Until so many more have been answered."""
        with self._changed:
            wanted = self._done + calls
            assert self._changed.wait_for(
                lambda: self._done >= wanted or self._failure is not None, 60
            )

    def _run(self):
        try:
            while not self._is_ending:
                self._call()
                with self._changed:
                    self._done += 1
                    self._changed.notify_all()
        except BaseException as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify_all()


@pytest.fixture
def running():
    return Running


@pytest.fixture
def checked(cluster, one_server, normal):
    """checked(replicas)"""
    made = []

    def make(replicas):
        wait_for_nodes(cluster, 4)
        made.append(Checked(cluster, one_server, normal, replicas))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def both(cluster, one_server, normal):
    """A sequence over four servers, and one with the same keys at one server."""
    rows = (
        normal(compared.HEADS, compared.KEYS, compared.WIDTH),
        normal(compared.HEADS, compared.KEYS, compared.WIDTH),
    )
    with (
        cluster.sequence(
            heads=compared.HEADS, width=compared.WIDTH, range_keys=64
        ) as sharded,
        one_server.sequence(heads=compared.HEADS, width=compared.WIDTH) as whole,
    ):
        assert sharded.append(*rows) == compared.KEYS
        whole.append(*rows)
        yield sharded, whole


@pytest.fixture(scope="module")
def servers():
    """Without Ray, more than it has nodes."""
    with Servers(SERVERS, **LOOPBACK) as made:
        yield made


@pytest.fixture
def sharded(servers, normal):
    made = servers.sequence(HEADS, WIDTH, SIZE)
    made.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
    servers.forget()
    return made
