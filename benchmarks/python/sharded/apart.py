"""Nodes apart on one machine: each server has a network of its own, with a bandwidth,
and a share of a processor. So they neither wait for each other nor for the client.

Runs where `unshare --net --mount` has put this program: what is made of networks here
is nobody else's, and goes with it. Needs root, and Debian's iproute2.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from attention_client.server import find_binary

_GROUPS = Path("/sys/fs/cgroup")
_QUOTA_US = 1000  # the least that the kernel takes: a server stands still shortly
_NETWORK = "198.18.0"  # RFC 2544: for benchmarks


class Nodes(contextlib.ExitStack):
    """share: of a processor, for each; gbit: a second, each way."""

    def __init__(self, count, share, gbit):
        super().__init__()
        self._folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        try:
            _run("ip link set lo up")
            _run("ip link add nodes type bridge")
            _run(f"ip addr add {_NETWORK}.254/24 dev nodes")
            _run("ip link set nodes up")
            for node in range(count):
                self._make_network(
                    node, f"tbf rate {gbit}gbit burst 128kb latency 20ms"
                )
                self._make_group(node, share)
        except BaseException:
            self.close()
            raise

    def flags(self, node):
        """LocalServer's, of the server of a node."""
        program = self._folder / f"{node}"
        program.write_text(
            f"#!/bin/sh\necho $$ > {_group(node)}/cgroup.procs\n"
            f'exec ip netns exec node{node} {shlex.quote(find_binary())} "$@"\n'
        )
        program.chmod(0o700)
        address = f"{_NETWORK}.{node + 1}"
        return {
            "binary": program,
            "grpc_address": address,
            "insecure": True,
            "peers": f"{_NETWORK}.0/24:*",
        }

    def _make_network(self, node, queue):
        inside = f"node{node}"
        _run(f"ip netns add {inside}")
        self.callback(_run, f"ip netns del {inside}")
        _run(f"ip link add to{node} type veth peer name eth0 netns {inside}")
        _run(f"ip link set to{node} master nodes up")
        _run(f"ip -n {inside} addr add {_NETWORK}.{node + 1}/24 dev eth0")
        _run(f"ip -n {inside} link set lo up")
        _run(f"ip -n {inside} link set eth0 up")
        _run(f"tc qdisc add dev to{node} root {queue}")
        _run(f"tc -n {inside} qdisc add dev eth0 root {queue}")

    def _make_group(self, node, share):
        group = _group(node)
        group.mkdir()
        self.callback(_remove, group)
        period = round(_QUOTA_US / share)
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{_QUOTA_US} {period}")
        else:
            (group / "cpu.cfs_period_us").write_text(f"{period}")
            (group / "cpu.cfs_quota_us").write_text(f"{_QUOTA_US}")


def missing():
    """What this machine lacks for it; empty if nothing."""
    if os.geteuid() != 0:
        return "root, who may make network namespaces and control groups"
    for program in ("ip", "tc", "unshare"):
        if shutil.which(program) is None:
            return f"the program {program} (Debian: iproute2, util-linux)"
    if subprocess.run(["unshare", "--net", "--mount", "true"], check=False).returncode:
        return "leave to make network namespaces (a container may not have it)"
    if not os.access(_groups(), os.W_OK):
        return f"control groups that can be written ({_groups()})"
    return ""


def _groups():
    one_tree = (_GROUPS / "cgroup.controllers").exists()  # version 2
    return _GROUPS if one_tree else _GROUPS / "cpu"


def _group(node):
    return _groups() / f"attention-sharded-{os.getpid()}-{node}"


def _remove(group):
    """Once the processes that were in it are gone for the kernel, too."""
    for _ in range(100):
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.01)
    return group.rmdir()


def _run(command):
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
