"""Sequences under load: appends that race with delete, and very many that expire."""

import contextlib
import threading
import time

import grpc
import numpy as np
from attacked_server import PATIENCE
from attention.v1 import attention_pb2 as pb
from grpc import StatusCode
from polling import wait_until
from sequence_calls import code_of, rows
from sequences import Sequences, form, tensor


def test_appends_that_race_with_delete(start):
    server = start("--resident-memory-limit", "32MiB")
    over = threading.Event()
    failures, counts = [], {"appended": 0, "attended": 0, "deleted": 0}

    @contextlib.contextmanager
    def sequences_of_own():
        try:
            with server.channel() as channel:
                yield Sequences(channel)
        except Exception as error:
            failures.append(repr(error))

    def put(number):
        with sequences_of_own() as sequences:
            while not over.is_set():
                key = np.full((1, 70, 4), float(number))
                code, said = code_of(sequences.append, "racy", key, key)
                if code not in (StatusCode.OK, StatusCode.NOT_FOUND):
                    failures.append(f"append: {code} {said}")
                counts["appended"] += code == StatusCode.OK

    def attend():
        # Each query scores nothing, so the output is the mean of whole appends.
        with sequences_of_own() as sequences:
            while not over.is_set():
                try:
                    reply = sequences.attend(["racy"], np.zeros((1, 4)), return_weights=True)
                except grpc.RpcError as error:
                    if error.code() != StatusCode.NOT_FOUND:
                        failures.append(f"attend: {error.code()} {error.details()}")
                    continue
                counts["attended"] += 1
                output = np.frombuffer(reply.output.data, "<f4")
                appends = reply.weights.shape[1] / 70
                total = output[0] * appends
                if appends % 1 or abs(total - round(total)) > 1e-3 * max(1, total):
                    failures.append(f"half an append: {output}, {appends}")

    threads = [threading.Thread(target=put, args=(n,)) for n in (1, 2, 3)]
    threads += [threading.Thread(target=attend) for _ in range(2)]
    with server.channel() as channel:
        sequences = Sequences(channel)
        before = sequences.held_bytes()
        for thread in threads:
            thread.start()
        end = time.monotonic() + 3
        while time.monotonic() < end and not failures:
            with contextlib.suppress(grpc.RpcError):
                sequences.create("racy")
            time.sleep(0.003)
            fork = code_of(sequences.fork, "racy", new_name="fork")
            counts["deleted"] += sequences.delete("racy")
            if fork[0] == StatusCode.OK:
                counts["deleted"] += sequences.delete("fork")
        over.set()
        for thread in threads:
            thread.join()
        sequences.delete("racy")
        assert not failures, failures[:3]
        assert min(counts.values()) > 10, counts
        assert sequences.all_names() == []
        # Nobody reads any more: what was appended to what was deleted is gone, too.
        wait_until(lambda: sequences.held_bytes() == before, "memory is given back")


def test_truncates_of_what_is_appended_to_hold_up_no_server_info(start):
    server = start("--resident-memory-limit", "1GiB", "--max-request-bytes", "1GiB")
    heads, width, count, callers = 64, 128, 3500, 16
    service = "/attention.v1.KeyValueService/"
    key = tensor(np.ones((heads, count, width), np.float32))
    append = pb.AppendRequest(name="a", key=key, value=key).SerializeToString()
    truncate = pb.TruncateRequest(name="a", length=0).SerializeToString()
    waited = {"truncate": [], "info": []}
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(server.channel()) for _ in range(callers + 2)]
        own, info_channel = channels.pop(), channels.pop()
        Sequences(own).create("a", form=form(heads=heads, width=width))
        info = info_channel.unary_unary("/attention.v1.AttentionService/GetServerInfo")
        info(b"", timeout=PATIENCE)  # with the connection
        truncates = [channel.unary_unary(service + "Truncate") for channel in channels]

        def start_truncate(call):
            begin = time.monotonic()
            future = call.future(truncate, timeout=PATIENCE)
            future.add_done_callback(
                lambda _: waited["truncate"].append(time.monotonic() - begin)
            )
            return begin, future

        pending = [start_truncate(call) for call in truncates]
        appended = own.unary_unary(service + "Append").future(append, timeout=PATIENCE)
        while not appended.done():
            pending = [
                start_truncate(call) if future.done() else (begin, future)
                for call, (begin, future) in zip(truncates, pending, strict=True)
            ]
            begin = time.monotonic()
            info(b"", timeout=PATIENCE)
            waited["info"].append(time.monotonic() - begin)
        appended.result()
        for begin, future in pending:
            future.result()  # its callback may come later
            waited["truncate"].append(time.monotonic() - begin)
    longest = {what: max(times) for what, times in waited.items()}
    # A truncate waits for the append, which shows how long that took.
    assert longest["info"] < 0.5 * longest["truncate"], longest


def test_100_000_sequences_come_and_go(start):
    count, idle_seconds = 100_000, 10
    server = start("--resident-memory-limit", "1GiB")
    over = threading.Event()
    waited, failures = {"health": [], "attend": []}, []

    def others():
        """A probe, and a caller who attends."""
        with server.channel() as channel:
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            sequences = Sequences(channel)
            health(b"", timeout=PATIENCE)  # with the connection
            while not over.is_set():
                begin = time.monotonic()
                try:
                    health(b"", timeout=PATIENCE)
                    waited["health"].append(time.monotonic() - begin)
                    begin = time.monotonic()
                    sequences.attend(["stays"], np.ones((1, 4)))
                    waited["attend"].append(time.monotonic() - begin)
                except grpc.RpcError as error:
                    failures.append(f"{error.code()} {error.details()}")
                    return
                time.sleep(0.005)

    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("stays")
        sequences.append("stays", *rows(3))
        thread = threading.Thread(target=others)
        thread.start()
        try:
            begin = time.monotonic()
            made = []
            while len(made) < count:
                more = min(256, count - len(made))
                made += sequences.create(
                    *[""] * more, label="many", idle_limit_ms=idle_seconds * 1000
                )
            created = time.monotonic()
            listed = sequences.all_names(label="many")
            end = time.monotonic()
            assert listed == sorted(set(listed)) and set(listed) <= set(made)
            # All of them, unless some have expired by then.
            assert len(listed) == count or end - begin > idle_seconds
            wait_until(
                lambda: not sequences.list(label="many", page_size=1).sequences,
                "they expire",
            )
            gone = time.monotonic()
        finally:
            over.set()
            thread.join()
        assert not failures, failures
        assert sequences.all_names() == ["stays"]
        for name in (made[0], made[-1]):
            assert code_of(sequences.describe, name)[0] == StatusCode.NOT_FOUND
        figures = ", ".join(
            f"{what} {len(times)} times, {1000 * max(times):.1f} ms at most"
            for what, times in waited.items()
        )
        print(
            f"made in {created - begin:.1f} s, listed in {end - created:.1f} s, all gone "
            f"after {gone - begin:.1f} s; beside it {figures}; "
            f"{server.most_memory() >> 20} MiB at most"
        )
    assert server.is_running()
