"""Regions of memory that this process and a server on the same machine both map.

A region is a file in /dev/shm of a random name, which only this user can open, and
only until the server has opened it: then the file is removed, and what is left of it
ends with the two processes. A lock on the file, which the mapping holds, says that the
region is in use: the server drops one whose lock is gone, as it is when its process has
ended, however that ended.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets
import stat
import sys
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np

from attention_client._arrays import Array

_FOLDER = Path("/dev/shm")
_UNIT = 1 << 20  # sizes are multiples of it, in bytes
_MOST_IDLE = 512 << 20  # bytes that a pool keeps for later calls
_MOST_LENT = 64  # regions that results may hold
_LEAST_LENT = 256 << 10  # bytes; less is copied, and its region is free at once
_YOUNG = 60.0  # seconds that a file is left alone: it may not be locked yet
_PAUSE = 30.0  # seconds without shared memory, after it could not be had
_NAME = re.compile(r"attention-[0-9a-f]{32}-[0-9]+")
_IPV4 = r"127(\.[0-9]{1,3}){3}"
_ADDRESS = rf"({_IPV4}|localhost|\[(::1|::ffff:{_IPV4})\])(:[0-9]+)?"
# gRPC calls any of a list.
_LOCAL = re.compile(
    rf"unix(-abstract)?:.*|(dns:///|ipv[46]:)?{_ADDRESS}(,{_ADDRESS})*", re.DOTALL
)


def is_local(target: str) -> bool:
    """Whether gRPC's target is on this machine, as far as its name says."""
    return _LOCAL.fullmatch(target) is not None


def is_supported() -> bool:
    """Whether this system has what regions need."""
    return sys.platform == "linux"


def remove_abandoned_files() -> None:
    """Those of clients that were killed between making and removing them."""
    for path in _FOLDER.glob("attention-*"):
        if not _NAME.fullmatch(path.name):
            continue  # another program's
        try:
            if _is_abandoned(path):
                path.unlink(missing_ok=True)
        except OSError:
            continue  # gone


def _is_abandoned(path: Path) -> bool:
    found = path.lstat()
    # Anybody may leave anything there: opening a FIFO would wait for its writer.
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return False
    if time.time() - found.st_mtime < _YOUNG:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


class Region:
    """Memory under a name; an OSError where there is no room for it."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self.is_registered = False
        self._path = _FOLDER / name
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Unlike a file with holes, it cannot turn out later to have no room.
            os.posix_fallocate(descriptor, 0, size)
            self.memory: Array = np.frombuffer(
                mmap.mmap(descriptor, size), dtype=np.uint8
            )
        except BaseException:
            self.remove_file()
            raise
        finally:
            os.close(descriptor)

    def remove_file(self) -> None:
        """Once the server has opened it, or is never to."""
        self._path.unlink(missing_ok=True)


_forks = 0  # how often this process was forked; each counts twice


def _count_fork() -> None:
    global _forks
    _forks += 1


# Afterwards, too: another thread may make results between the first count and the fork.
os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)


class _Loan:
    """What an array keeps alive that lies in a region: gives it back at its end."""

    def __init__(self, region: Region, size: int, pool: Pool) -> None:
        self._region = region
        self._pool = pool
        self._forks = _forks
        self.__array_interface__ = {
            **region.memory[:size].__array_interface__,
            "version": 3,
        }

    def __del__(self) -> None:
        # A child that was forked meanwhile has the array still, and writes to it.
        self._pool.take_back(self._region, is_shared=self._forks != _forks)


class Pool:
    """Regions for the calls of one client; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Region] = []  # in the order of their last use
        # No longer lent, and whether a child has them; not yet among the others.
        self._returned: deque[tuple[Region, bool]] = deque()
        self._unwanted: list[str] = []
        self._names: set[str] = set()  # that the server may know as this pool's
        self._lent = 0
        self._count = 0
        self._off_until = 0.0
        self._is_closed = False
        self.is_tidy = False  # whether others' leftovers were looked for
        self._process = os.getpid()
        # Names of a server's regions are everybody's: no other pool has this one's.
        self.word = secrets.token_hex(16)

    def is_own(self) -> bool:
        """False in a child that os.fork() has made: its parent uses the memory."""
        return os.getpid() == self._process

    def is_on(self) -> bool:
        return (
            self.is_own()
            and not self._is_closed
            and time.monotonic() >= self._off_until
        )

    def pause(self) -> None:
        """It cannot be had: not allowed, another machine, or no room."""
        self._off_until = time.monotonic() + _PAUSE

    def take(self, size: int) -> Region:
        """A region of size bytes or more, registered or not.

        Follow with give_back(), lend() or drop().
        """
        with self._lock:
            self._collect()
            fitting = [region for region in self._idle if size <= region.size]
            if fitting:
                region = min(fitting, key=lambda region: region.size)
                self._idle.remove(region)
                return region
            self._count += 1
            return Region(f"attention-{self.word}-{self._count}", _rounded(size))

    def registering(self, region: Region) -> None:
        """The server may know it from now on, whatever it answers."""
        with self._lock:
            self._names.add(region.name)

    def not_registered(self, region: Region) -> None:
        """The server has another's of that name, which is not to be unregistered."""
        with self._lock:
            self._names.discard(region.name)

    def give_back(self, region: Region) -> None:
        with self._lock:
            self._keep(region)

    def lend(self, region: Region, size: int) -> Array:
        """The region's first bytes as an array; it comes back when they are let go.

        A copy, where they are few or too many regions are away.
        """
        with self._lock:
            self._collect()
            if size >= _LEAST_LENT and self._lent < _MOST_LENT:
                self._lent += 1
                lent: Array = np.asarray(_Loan(region, size, self))
                return lent
        copy: Array = region.memory[:size].copy()
        self.give_back(region)
        return copy

    def take_back(self, region: Region, *, is_shared: bool) -> None:
        """Of the collector, at any time: nothing that waits."""
        self._returned.append((region, is_shared))
        if self._is_closed:
            self._returned.clear()

    def drop(self, region: Region) -> None:
        """For one that the server may still use, or has no use for."""
        with self._lock:
            self._discard(region)

    def forget(self) -> None:
        """The server no longer knows any of them."""
        with self._lock:
            for region in self._idle:
                self._discard(region)
            self._idle.clear()

    def close(self) -> None:
        """Lets all go, and what comes back later. Results that are held stay."""
        self._is_closed = True
        self._returned.clear()
        self.forget()

    def unwanted(self) -> list[str]:
        """Names for the server to forget, each once."""
        with self._lock:
            names, self._unwanted = self._unwanted, []
            self._names.difference_update(names)
            return names

    def names(self) -> list[str]:
        """All that the server may know."""
        with self._lock:
            return sorted(self._names)

    def _collect(self) -> None:
        while self._returned:
            self._lent -= 1
            region, is_shared = self._returned.popleft()
            (self._discard if is_shared else self._keep)(region)

    def _keep(self, region: Region) -> None:
        if self._is_closed:
            self._discard(region)
            return
        self._idle.append(region)
        while sum(region.size for region in self._idle) > _MOST_IDLE:
            self._discard(self._idle.pop(0))

    def _discard(self, region: Region) -> None:
        region.remove_file()
        if region.name in self._names:
            self._unwanted.append(region.name)


def _rounded(size: int) -> int:
    return max(-(-size // _UNIT), 1) * _UNIT
