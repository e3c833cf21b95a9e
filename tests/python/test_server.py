"""A server of one's own: how it starts, and that it always ends."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest
from polling import wait_until

from attention_client import Client, FailedPreconditionError, LocalServer
from attention_client.server import _WATCHDOG, BINARY_VARIABLE, find_binary


def has_ended(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    # A child of a container's first process may stay a zombie.
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_it_serves_on_a_port_until_the_context_ends():
    with LocalServer(worker_threads=1) as server, Client(server.target) as client:
        assert client.info().worker_threads == 1
        assert "listening on" in server.log()
        assert "warning" not in server.log()
        folder = server.log_path.parent
    assert not server.is_running()
    assert not folder.exists()
    assert server.stop() == 0


def test_a_flag_of_http_switches_it_on():
    with LocalServer(http_port=0) as server:
        assert ", http://127.0.0.1:" in server.log()


def test_a_flag_of_http_alone_has_a_free_port():
    with LocalServer(http_host="a") as server, LocalServer(http_host="a") as other:
        for one in (server, other):
            assert ", http://127.0.0.1:" in one.log()
            assert ", http://127.0.0.1:8002" not in one.log()


def test_what_switches_a_part_of_http_off_switches_nothing_on():
    with LocalServer(http_inference=False) as server:
        assert "listening on" in server.log()
        assert "http://" not in server.log()


def test_a_flag_may_have_several_values():
    with pytest.raises(RuntimeError, match=r"peers: 'b' \(expected HOST:PORT"):
        LocalServer(peers=["127.0.0.1:1", "b"])


@pytest.mark.parametrize("level", ["error", "off"])
def test_it_starts_whatever_it_logs(level):
    with LocalServer(log_level=level) as server, Client(server.target) as client:
        assert client.health() == "SERVING"
        assert server.log() == ""


def test_it_serves_on_a_unix_socket():
    with LocalServer(unix_socket=True) as server, Client(server.target) as client:
        assert server.target.startswith("unix:")
        assert client.health() == "SERVING"


def test_a_wrong_flag_is_told_in_the_servers_words():
    with pytest.raises(RuntimeError, match=r"worker-threats.*worker-threads"):
        LocalServer(worker_threats=1)


def test_a_program_that_is_not_there_is_named(monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match="/nowhere/server"):
        LocalServer("/nowhere/server")
    monkeypatch.delenv(BINARY_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="attention-server in the PATH"):
        LocalServer()
    program = tmp_path / "attention-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_binary() == str(program)


def test_a_program_that_does_not_listen_is_ended(tmp_path):
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    with pytest.raises(TimeoutError, match=r"does not listen after 0\.2 s"):
        LocalServer(program, start_timeout=0.2)


def test_without_room_for_its_watchdog_it_is_ended(monkeypatch, tmp_path):
    start, started = subprocess.Popen, []

    def start_one(*arguments, **options):
        if started:
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        started.append(start(*arguments, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_one)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BlockingIOError):
        LocalServer()
    assert has_ended(started[0].pid)
    assert not list(tmp_path.iterdir())


FORKS = """
import os, sys
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(s.is_running(), s.log_path.exists(), flush=True)
"""
STARTS = "import attention_client as a; s = a.LocalServer(); print(s.pid, flush=True); "


def test_it_ends_with_its_program():
    ended = subprocess.run(
        [sys.executable, "-c", STARTS], capture_output=True, text=True, check=True
    )
    pid = int(ended.stdout)
    wait_until(lambda: has_ended(pid), "the server has ended")


def test_it_outlives_a_forked_child_and_ctrl_c():
    with LocalServer() as server:
        child = subprocess.run(
            [sys.executable, "-c", STARTS + FORKS], capture_output=True, text=True
        )
        assert child.stdout.splitlines()[1:] == ["True True"], child.stderr
        assert os.getpgid(server.pid) != os.getpgrp()


def test_it_outlives_a_forked_child_that_leaves_its_context():
    with LocalServer() as server:
        folder = server.log_path.parent
        child = os.fork()
        if child == 0:
            server.__exit__(None, None, None)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert folder.is_dir()
        assert server._watchdog.poll() is None
        with Client(server.target) as client:
            assert client.health() == "SERVING"


DIES = "s._process.kill(); s._process.wait(); print(s.is_running(), flush=True); "


@contextlib.contextmanager
def program_with_a_server(then=""):
    """A program that waits, its server's process id, and the server's folder."""
    waits = STARTS + f"print(s.log_path.parent, flush=True); {then}input()"
    with subprocess.Popen(
        [sys.executable, "-c", waits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        pid = int(program.stdout.readline())
        yield program, pid, Path(program.stdout.readline().strip())


def test_it_ends_with_a_program_that_is_killed():
    with program_with_a_server() as (program, pid, folder):
        assert folder.is_dir()
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: has_ended(pid), "the server has ended")
    wait_until(lambda: not folder.exists(), "its folder is gone")


WAITING_CHILD = """
import os, signal
child = os.fork()
if child == 0:
    signal.pause()
print(s.log_path.parent, child, flush=True)
signal.pause()
"""


def test_it_ends_with_a_killed_program_whose_child_goes_on():
    with subprocess.Popen(
        [sys.executable, "-c", STARTS + WAITING_CHILD],
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        pid = int(program.stdout.readline())
        folder, child = program.stdout.readline().split()
        program.send_signal(signal.SIGKILL)
    try:
        wait_until(lambda: has_ended(pid), "the server has ended")
        wait_until(lambda: not Path(folder).exists(), "its folder is gone")
        assert not has_ended(child)
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_its_watchdog_goes_on_once_it_has_died():
    with LocalServer() as server:
        folder = server.log_path.parent
        server._process.kill()
        wait_until(lambda: not server.is_running(), "the server has ended")
        assert not server.is_running()
        assert server._watchdog.poll() is None
        assert server.log()
    assert server.stop() == -signal.SIGKILL
    assert server._watchdog.returncode == 0
    assert not folder.exists()


def test_its_folder_goes_although_it_has_died_before_its_program():
    with program_with_a_server(DIES) as (program, _, folder):
        assert program.stdout.readline() == "False\n"
        assert folder.is_dir()
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: not folder.exists(), "its folder is gone")


def test_its_watchdog_ends_nothing_once_it_has_died(tmp_path):
    """Its number may be another process's then."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            watchdog = ["/bin/sh", "-c", _WATCHDOG, str(other.pid), folder]
            subprocess.run(watchdog, input=b"\n", check=True)
            assert not folder.exists()
            assert other.poll() is None
        finally:
            other.kill()


def test_its_folder_goes_although_its_children_are_killed_first():
    """As Ray ends a process."""
    with program_with_a_server() as (program, _, folder):
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        assert folder.is_dir()
        program.send_signal(signal.SIGKILL)
    wait_until(lambda: not folder.exists(), "its folder is gone")


def test_files_of_sequences_may_have_a_folder_of_its_own():
    with LocalServer(resident_folder=True) as server, Client(server.target) as client:
        client.sequence(heads=1, width=4).export("file")
        assert (server.files / "file").is_file()
    assert not server.files.exists()


@pytest.mark.parametrize("nothing", [None, False])
def test_no_folder_is_no_folder(nothing):
    with LocalServer(resident_folder=nothing, worker_threads=None) as server:
        assert server.files is None
        with Client(server.target) as client:
            sequence = client.sequence(heads=1, width=4)
            with pytest.raises(FailedPreconditionError, match="resident-folder"):
                sequence.export("file")


def test_the_package_with_the_server_comes_before_the_path(monkeypatch, tmp_path):
    in_path, packaged = tmp_path / "attention-server", tmp_path / "packaged"
    for program in (in_path, packaged):
        program.touch(mode=0o755)
    monkeypatch.delenv(BINARY_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "attention_server", None)  # not installed
    assert find_binary() == str(in_path)
    module = types.ModuleType("attention_server")
    module.path = lambda: packaged
    monkeypatch.setitem(sys.modules, "attention_server", module)
    assert find_binary() == str(packaged)
    monkeypatch.setenv(BINARY_VARIABLE, str(in_path))
    assert find_binary() == str(in_path)
