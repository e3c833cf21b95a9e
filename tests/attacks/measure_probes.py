"""Measures probes of health, over HTTP and gRPC, while callers attack."""

import argparse
import contextlib
import multiprocessing
import tempfile
import time
from pathlib import Path

import hpack
from attacked_server import PATIENCE, AttackedServer, connect_to_grpc
from call_flood import (
    ACK,
    DATA,
    EMPTY_MESSAGE,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    frame,
    headers,
)
from http_callers import Attack, ask, connect, pipelining

CONNECTS_PER_SECOND = 4000
IDLE = 512
# From one probe to the next: others have their turns, too.
PAUSE = 0.02  # seconds


def http_probe(server):
    assert ask(server, "GET", "/v2/health/live")[0] == 200


def read_exactly(connection, count):
    read = b""
    while len(read) < count:
        more = connection.recv(count - len(read))
        assert more, "the server closed the connection"
        read += more
    return read


def grpc_probe(server):
    """A Health.Check on a connection of its own, without a client's own threads."""
    call = headers(hpack.Encoder(), "/grpc.health.v1.Health/Check")
    with connect_to_grpc(server) as connection:
        connection.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0)
            + frame(SETTINGS, ACK, 0)
            + frame(HEADERS, END_HEADERS, 1, call)
            + frame(DATA, END_STREAM, 1, EMPTY_MESSAGE)
        )
        served = False
        while True:
            head = read_exactly(connection, 9)
            kind, flags = head[3], head[4]
            payload = read_exactly(connection, int.from_bytes(head[:3], "big"))
            served = served or kind == DATA and payload[5:] == b"\x08\x01"  # SERVING
            if kind == HEADERS and flags & END_STREAM:
                assert served
                return


def pipeline_metrics(server):
    """60 connections that send requests ahead."""
    metrics = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with Attack(pipelining(server, metrics), threads=60):
        time.sleep(PATIENCE)


def connect_alone(server):
    """One that connects and closes, over and over."""
    while True:
        with contextlib.suppress(OSError):
            connect(server).close()


def connect_often(to):
    """So many a second as CONNECTS_PER_SECOND says; each is closed when others have come."""

    def attack(server):
        begin, kept = time.monotonic(), []
        for n in range(CONNECTS_PER_SECOND * PATIENCE):
            time.sleep(max(0, begin + n / CONNECTS_PER_SECOND - time.monotonic()))
            with contextlib.suppress(OSError):
                kept.append(to(server))
            if len(kept) > 256:
                kept.pop(0).close()

    return attack


def stay_idle(to):
    def attack(server):
        kept = [to(server) for _ in range(IDLE)]
        time.sleep(PATIENCE)
        del kept

    return attack


ATTACKS = {
    "nothing": [],
    "60 HTTP connections pipeline /metrics, one connects and closes": [
        pipeline_metrics,
        connect_alone,
    ],
    f"{IDLE} idle HTTP connections": [stay_idle(connect)],
    f"{IDLE} idle gRPC connections": [stay_idle(connect_to_grpc)],
    f"{CONNECTS_PER_SECOND} connects a second, HTTP": [connect_often(connect)],
    f"{CONNECTS_PER_SECOND} connects a second, gRPC": [connect_often(connect_to_grpc)],
}


@contextlib.contextmanager
def attacked(server, attacks):
    """Each attack has a process of its own: threads of this one would keep the probes waiting."""
    context = multiprocessing.get_context("fork")
    attackers = [context.Process(target=attack, args=(server,)) for attack in attacks]
    for attacker in attackers:
        attacker.start()
    time.sleep(1)  # under way
    try:
        yield
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.join()


def times_of(probe, server, count):
    """Milliseconds, in order; of one that failed, as long as it took."""
    times, failed = [], 0
    for _ in range(count):
        begin = time.monotonic()
        try:
            probe(server)
        except (AssertionError, OSError):
            failed += 1
        times.append(1000 * (time.monotonic() - begin))
        time.sleep(PAUSE)
    return sorted(times), failed


def row(times, failed):
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    cell = f"{p50:.1f}, {p99:.1f}, {times[-1]:.1f}"
    return cell + f" ({failed} failed)" * (failed > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probes", type=int, default=300, help="of each kind under each attack")
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), help="these attacks, by words")
    arguments = parser.parse_args()
    print("| attack | HTTP: p50, p99, max in ms | gRPC: p50, p99, max in ms |\n| --- | --- | --- |")
    for name, attacks in ATTACKS.items():
        if not any(words in name for words in arguments.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            server = AttackedServer(Path(folder))
            try:
                with attacked(server, attacks):
                    cells = [
                        row(*times_of(probe, server, arguments.probes))
                        for probe in (http_probe, grpc_probe)
                    ]
            finally:
                server.stop()
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
