"""A server of one's own, for notebooks, tests and work on one machine."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from pathlib import Path

from typing_extensions import Self

BINARY_VARIABLE = "ATTENTION_SERVER_BINARY"

# Ends the server, and removes its folder, where this process is gone without having
# done so: its end of the pipe is closed then, however it ended. A line says that there
# is no server to end, a second one that there is no folder, either. In a child of the
# shell: Ray kills the children of a process that it ends, but not theirs.
_WATCHDOG = (
    'exec 3<&0; { read -r _ <&3 || kill -TERM "$0"; read -r _ <&3 || rm -rf -- "$1"; }'
    " & wait"
)


def find_binary(binary: str | os.PathLike[str] | None = None) -> str:
    """The server's program: as given, of $ATTENTION_SERVER_BINARY, or installed.

    Installed: with the package attention-server, else in the PATH.
    """
    wanted = binary or os.environ.get(BINARY_VARIABLE) or _packaged()
    name = os.fspath(wanted or "attention-server")
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(
            f"no program {name} (expected attention-server in the PATH, its path in "
            f"${BINARY_VARIABLE} or as LocalServer's binary, or the package "
            "attention-server, whose wheel client/python-server/make-wheels makes)"
        )
    return found


def _packaged() -> Path | None:
    try:
        import attention_server
    except ImportError:
        return None
    path: Path = attention_server.path()
    return path


class LocalServer:
    """Starts attention-server on a free loopback port, and ends it.

    binary: the program; None: $ATTENTION_SERVER_BINARY, else what is installed.
    unix_socket: listen on a Unix-domain socket as well, which .target then names; it
    is in a folder that only this user can enter, and costs less than a port.
    start_timeout: seconds until it must listen.
    resident_folder: as the server's flag; True: a folder of its own, which goes when
    the server ends. .files names it, or is None.
    flags: the server's, with underscores: worker_threads=2, model_repository="sets",
    peers=["10.0.0.7:8001"]. None is as good as left out. It serves HTTP with http=True,
    on port 8002, or with a flag of HTTP's that is not False, on a free port unless
    http_port says which.

    It ends with stop(), with the context, and with this process, however that ends.

        with LocalServer() as server, Client(server.target) as client:
            ...
    """

    def __init__(
        self,
        binary: str | os.PathLike[str] | None = None,
        *,
        unix_socket: bool = False,
        start_timeout: float = 60.0,
        **flags: object,
    ) -> None:
        program = find_binary(binary)
        if "ready_file" in flags:
            raise TypeError("ready_file: it is LocalServer's own (see .target)")
        flags = {name: value for name, value in flags.items() if value is not None}
        if flags.get("resident_folder") is False:
            del flags["resident_folder"]
        if "http" not in flags and any(
            name.startswith("http_") and value is not False
            for name, value in flags.items()
        ):
            flags = {"http": True, "http_port": 0, **flags}
        # Not TemporaryDirectory: a child that os.fork() has made would remove it.
        self._folder = Path(tempfile.mkdtemp(prefix="attention-"))
        self.log_path = self._folder / "log"
        wanted: dict[str, object] = {
            "grpc_address": "127.0.0.1",
            "grpc_port": 0,
            "http": False,
            "log_level": "info",
            "log_format": "text",
            **flags,
            "ready_file": self._folder / "ready",
        }
        if wanted.get("resident_folder") is True:
            wanted["resident_folder"] = self._folder / "files"
            (self._folder / "files").mkdir()
        files = wanted.get("resident_folder")
        self.files = Path(str(files)) if files else None
        socket = self._folder / "socket"
        if unix_socket:
            wanted["grpc_unix_socket"] = socket
        with contextlib.ExitStack() as undo, open(self.log_path, "wb") as log:
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._process = subprocess.Popen(
                [program, *(_flag(name, value) for name, value in wanted.items())],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the program, not for it
                stdout=log,
                stderr=log,
                # The server warns of variables that it does not know.
                env={n: v for n, v in os.environ.items() if n != BINARY_VARIABLE},
            )
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, str(self._process.pid), str(self._folder)],
                stdin=subprocess.PIPE,
                bufsize=0,  # no lock, which a thread could hold while this one forks
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            undo.pop_all()
        self._untold = [b"\n"]  # a list: of two threads that pop, one gets it
        _started.add(self)
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            address = self._wait_until_listening(start_timeout)
        except BaseException:
            self.stop()
            raise
        # What Client takes.
        self.target = f"unix:{socket}" if unix_socket else address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def log(self) -> str:
        """What the server has logged so far; gone after stop()."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def is_running(self) -> bool:
        if self._process.poll() is None:
            return True
        self._tell_watchdog()
        return False

    def stop(self) -> int:
        """Lets running requests finish and ends the server. Its exit code.

        Safe to call twice. In a child that os.fork() has made it does nothing: the
        server is its parent's.
        """
        if os.getpid() != self._owner:
            return 0
        atexit.unregister(self.stop)
        if self.is_running():
            self._process.terminate()
        try:
            code = self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._tell_watchdog()
        if self._watchdog.returncode is None:
            with contextlib.suppress(ValueError):  # another thread has closed the pipe
                self._watchdog.communicate(b"\n")
        shutil.rmtree(self._folder, ignore_errors=True)
        return code

    def _tell_watchdog(self) -> None:
        """Once the server has ended: its number may become another process's."""
        if os.getpid() != self._owner:
            return
        pipe = self._watchdog.stdin
        assert pipe is not None
        # It has been told, is gone, or another thread has closed the pipe.
        with contextlib.suppress(IndexError, BrokenPipeError, ValueError):
            pipe.write(self._untold.pop())

    def _wait_until_listening(self, timeout: float) -> str:
        end = time.monotonic() + timeout
        ready = self._folder / "ready"
        while True:
            running = self.is_running()
            if ready.exists() and (address := ready.read_text()).endswith("\n"):
                return address.strip()
            if not running:
                raise RuntimeError(f"the server does not start: {self.log().strip()}")
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the server does not listen after {timeout} s: {self.log()}"
                )
            time.sleep(0.01)


_started: weakref.WeakSet[LocalServer] = weakref.WeakSet()


def _in_child() -> None:
    """Closes a forked child's ends of the pipes, which would hide its parent's end."""
    for server in list(_started):
        pipe = server._watchdog.stdin
        assert pipe is not None
        pipe.close()


os.register_at_fork(after_in_child=_in_child)


def _flag(name: str, value: object) -> str:
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, (list, tuple)):
        value = ",".join(str(one) for one in value)
    return f"--{name.replace('_', '-')}={value}"
