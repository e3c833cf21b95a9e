"""Clients do at random to a few sequences what can be done to them, and each answer must
be one that some legal order of what they did gives.

tests/histories/run starts it. Clients are processes; they have calls with very short
deadlines, are killed in the middle of calls, or end themselves there. A history is that
of one layer of one sequence in one round of a few seconds. After it all is read while
nothing is under way: that is where the next one begins, and the end of all calls of
which nobody knows what became of them.
"""

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import recording
from checker import Undecided, check, shrink
from clients import Client
from contents import Contents, describe
from meaning import operations_of
from names import FIXED, Places
from running_server import RunningServer

CLIENTS = 8
ROUND = 2.5  # seconds
KILLS = 0.4  # seconds between them
PROGRESS = 10  # seconds between lines
FLAGS = ["--resident-memory-limit", "64MiB", "--worker-threads", "4"]
FORK = multiprocessing.get_context("fork")  # of a process that has no connections


def now():
    return time.monotonic_ns()


# ---- a round


class Round:
    """Its clients; all it leaves is in a folder."""

    def __init__(self, server, folder, numbers, seed):
        self._server = server
        self._folder = folder
        self._numbers = numbers
        self._random = random.Random(seed)
        self.killed = 0

    def _start(self, until):
        number = next(self._numbers) % (1 << 16)
        seed = self._random.randrange(1 << 32)
        process = FORK.Process(
            target=_run_client,
            args=(self._server.address, number, self._folder, seed, until),
            daemon=True,
        )
        process.start()
        return process

    def run(self, seconds):
        until = now() + int(seconds * 1e9)
        next_kill = now() + int(KILLS * 1e9)
        clients = [self._start(until) for _ in range(CLIENTS)]
        while now() < until:
            time.sleep(0.02)
            if now() > next_kill:
                next_kill += int(KILLS * 1e9)
                # Not os.kill(): one that has ended may have been waited for by now.
                self._random.choice(clients).kill()
            for n, client in enumerate(clients):
                if not client.is_alive() and now() < until:
                    self._note_end(client)
                    clients[n] = self._start(until)
        for client in clients:
            self._note_end(client)

    def _note_end(self, client):
        client.join(120)
        if client.exitcode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a client ended with {client.exitcode}")
        self.killed += client.exitcode != 0


def _run_client(address, number, folder, seed, until):
    Client(address, number, folder, seed).run(until)
    os._exit(0)  # without waiting for what gRPC still has


def _read_all(address, folder, layers_of):
    Client(address, 0, folder, 0, hurry=False).read_all(layers_of)
    os._exit(0)


QUIET = (
    'attention_connections{protocol="grpc"} 0',  # what came over them was read
    "attention_open_calls 0",
    "attention_requests_in_flight 0",
)


def wait_until_quiet(server):
    """Until no call is under way at the server, or on its way there."""
    end = time.monotonic() + 60
    quiet = 0
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://{server.http_address}/metrics") as page:
            lines = page.read().decode().splitlines()
        # Twice: a page is not of one moment.
        quiet = quiet + 1 if set(QUIET) <= set(lines) else 0
        if quiet == 2:
            return
        time.sleep(0.01)
    raise RuntimeError("calls are still under way a minute after their callers are gone")


# ---- its check


@dataclass
class Findings:
    """Of one round, or of all."""

    calls: Counter = field(default_factory=Counter)  # (kind, code)
    unknown: int = 0  # operations
    operations: int = 0
    histories: int = 0
    longest: int = 0
    keys_seen: int = 0
    seconds: float = 0.0
    problems: list = field(default_factory=list)

    def add(self, other):
        self.calls += other.calls
        for name in ("unknown", "operations", "histories", "keys_seen", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.problems += other.problems


def recorded_in(folder, findings):
    """(client, *call) of all calls."""
    recorded = []
    for path in sorted(folder.glob("calls-*")):
        client = path.name.removeprefix("calls-")
        calls, problems = recording.read(path)
        findings.problems += [f"client {client}: {text}" for text in problems]
        recorded += [(client, *call) for call in calls]
    return recorded


def layers_in(recorded, layers):
    """Of these names, and those of forks."""
    return layers | {
        one["name"]: one["layers"]
        for _, calls, *_ in recorded
        for one in calls
        if one["kind"] == "born"
    }


def histories_of(recorded, layers, findings):
    """(name, layer) to operations."""
    found = {}
    for client, calls, begin, end, answer in recorded:
        kind = calls[0]["kind"]
        if calls[0].get("keys") and kind == "attend":
            kind = "append and attend"
        if kind != "born":
            findings.calls[kind, answer["code"] if answer else "(killed)"] += 1
        for name, layer, operation in operations_of(
            calls, begin, end, answer, layers.get, client
        ):
            found.setdefault((name, layer), []).append(operation)
            findings.operations += 1
            findings.unknown += operation.optional
            findings.keys_seen += len(operation.seen or ())
    return found


def check_round(folder, layers, before):
    """Findings, and what each sequence holds afterwards: (name, layer) to ids. `before`
    is what it held at first; `layers` are those of the names that were known then."""
    start = time.monotonic()
    findings = Findings()
    after = {}
    contents = Contents()
    recorded = recorded_in(folder, findings)
    layers = layers_in(recorded, layers)
    for (name, layer), operations in histories_of(recorded, layers, findings).items():
        findings.histories += 1
        findings.longest = max(findings.longest, len(operations))
        initial = before.get((name, layer))
        if initial is not None:
            initial = contents.of(initial)
        try:
            dead = check(contents, operations, initial)
        except Undecided as undecided:
            findings.problems.append(f"{name}, layer {layer}: undecided: {undecided}")
            continue
        if dead is not None:
            findings.problems.append(
                explain(contents, name, layer, operations, initial, dead)
            )
        last = max(operations, key=lambda op: op.begin)
        after[name, layer] = last.seen if last.code == "OK" else None
    findings.seconds = time.monotonic() - start
    return findings, after


def explain(contents, name, layer, operations, initial, dead):
    lines = [f"no legal order gives these answers: {name}, layer {layer}"]
    start = min(op.begin for op in operations)

    def line(op):
        begin, end = ((t - start) / 1e6 for t in (op.begin, op.end))
        return f"  {begin:10.3f} to {end:10.3f} ms  client {op.client:>5}: {op}"

    def state_of(state):
        if state is None:
            return "not there"
        ids = contents.ids(state)
        text = " ".join(describe(one) for one in ids[-8:])
        return f"{len(ids)} keys{', the last ones' if len(ids) > 8 else ''} {text}"

    needed = shrink(contents, operations, initial)
    shown = [op for op in needed if not op.optional or op.code == "UNKNOWN"]
    lines.append(f"  at first: {state_of(initial)}")
    lines += [line(op) for op in shown[-30:]]
    lines.append(f"  ({len(operations) - len(shown)} others may have happened or not)")
    lines.append("  of the longest legal order, those that ended last:")
    lines += [line(op) for op in sorted(dead.done, key=lambda op: op.end)[-8:]]
    lines.append(f"  then there is: {state_of(dead.state)}; and now comes none of:")
    lines += [line(op) for op in dead.next[:8]]
    return "\n".join(lines)


class Check:
    """In a process of its own, beside the next round."""

    def __init__(self, *round_and_before):
        self._receiver, sender = FORK.Pipe(duplex=False)
        self._process = FORK.Process(target=self._run, args=(sender, *round_and_before))
        self._process.start()
        sender.close()

    def _run(self, sender, *round_and_before):
        try:
            sender.send(check_round(*round_and_before))
        except Exception:
            sender.send((Findings(problems=[traceback.format_exc()]), {}))

    def result(self):
        result = self._receiver.recv()
        self._process.join()
        return result


# ---- all of it


def progress(start, findings, killed):
    print(
        f"[{time.monotonic() - start:4.0f}s] {sum(findings.calls.values())} calls, "
        f"{findings.unknown} operations of unknown outcome, {killed} clients killed, "
        f"{findings.histories} histories checked in {findings.seconds:.1f} s",
        flush=True,
    )


def play(server, folder, seconds, seed):
    """Findings of all rounds until something is wrong, and how many clients were killed."""
    everything, check, killed = Findings(), None, 0
    before, layers = {}, dict(FIXED)
    numbers = itertools.count(1)
    start = told = time.monotonic()

    def collect():
        nonlocal before, told
        findings, after = check.result()
        everything.add(findings)
        before = after
        if time.monotonic() > told + PROGRESS:
            told = time.monotonic()
            progress(start, everything, killed)

    places = []
    for number in itertools.count(1):
        if everything.problems or time.monotonic() - start > seconds:
            break
        here = folder / f"round-{number}"
        here.mkdir()
        for path in places:
            shutil.copy(path, here)
        one = Round(server, here, numbers, seed + number)
        one.run(ROUND)
        killed += one.killed
        wait_until_quiet(server)
        all_layers = layers_in(recorded_in(here, Findings()), layers)
        reader = FORK.Process(target=_read_all, args=(server.address, here, all_layers))
        reader.start()
        reader.join(120)
        if reader.exitcode != 0:
            raise RuntimeError(f"the last reader ended with {reader.exitcode}")
        if check is not None:
            collect()
            shutil.rmtree(folder / f"round-{number - 1}", ignore_errors=True)
        check = Check(here, layers, before)
        layers = FIXED | Places(here).names()
        places = list(here.glob("place*"))
    collect()
    return everything, killed


def table(calls):
    codes = sorted({code for _, code in calls}, key=lambda code: (code != "OK", code))
    lines = ["".join([f"{'':20}", *[f"{code:>20}" for code in codes]])]
    for kind in sorted({kind for kind, _ in calls}):
        counts = [f"{calls[kind, code]:20}" for code in codes]
        lines.append(f"{kind:20}" + "".join(counts))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="tests/histories/run")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"histories: {arguments.minutes:g} minutes, --seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = RunningServer(folder / "log", *FLAGS)
        try:
            findings, killed = play(
                server, folder, arguments.minutes * 60, arguments.seed
            )
            if not server.is_running():
                findings.problems.append(f"the server died: {server.log()[-5000:]}")
        finally:
            code = server.stop()
    if code != 0:
        findings.problems.append(f"the server does not stop as it should: {code}")
    print(f"\n{table(findings.calls)}\n")
    print(
        f"{findings.operations} operations, {findings.unknown} of unknown outcome; "
        f"{killed} clients killed; {findings.keys_seen} keys read back\n"
        f"{findings.histories} histories, the longest of {findings.longest} operations, "
        f"checked in {findings.seconds:.1f} s"
    )
    for problem in findings.problems[:20]:
        print(f"\nproblem: {problem}")
    if findings.histories == 0 or findings.keys_seen == 0:
        findings.problems.append("nothing was checked")
    print("histories: failed" if findings.problems else "histories: passed")
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
