"""What is measured, and what is wanted of it."""

from dataclasses import dataclass

SMALL = (2, 1, 4, 8)
# Tensors of 4 MiB that take little time to compute.
LARGE = (128, 16, 8, 64)


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    shape: tuple[int, int, int, int]  # B, H, L, D, in FP32
    api: str = "native"  # or "inference", the Open Inference Protocol
    shared_memory: bool = False
    unix: bool = False
    stream: bool = False
    in_flight: int = 1
    rate: float = 0  # calls per second; 0: a closed loop
    # What it is held against: "ping", the same bytes over a plain socket of the
    # same kind, "echo", a gRPC call that does nothing, or "compute", the time
    # that the core takes for the problem. None: nothing.
    floor: str | None = None
    # At most so many times the floor, computing taken off.
    most_of_floor: float | None = None
    # At least so many calls a second.
    least_rate: float | None = None
    # A server of its own, whose memory is at most so many times the bytes of
    # the requests and replies in flight.
    most_memory: float | None = None

    def tensor_bytes(self) -> int:
        batch, heads, length, width = self.shape
        return batch * heads * length * width * 4

    def bytes_in_flight(self) -> int:
        return self.in_flight * 4 * self.tensor_bytes()


CASES = [
    Case("large-tcp", "4 MiB tensors, TCP", LARGE, floor="ping", most_of_floor=1.3),
    Case(
        "large-unix",
        "4 MiB tensors, Unix socket",
        LARGE,
        unix=True,
        floor="ping",
        most_of_floor=1.2,
    ),
    Case("small-tcp", "B2 L4 D8, TCP", SMALL, floor="echo", most_of_floor=1.2),
    Case("small-unix", "B2 L4 D8, Unix socket", SMALL, unix=True, floor="echo"),
    Case("small-8", "B2 L4 D8, 8 in flight, TCP", SMALL, in_flight=8),
    Case(
        "stream-tcp",
        "B2 L4 D8, stream, 32 in flight, TCP",
        SMALL,
        stream=True,
        in_flight=32,
        least_rate=40_000,
    ),
    Case(
        "stream-unix",
        "B2 L4 D8, stream, 32 in flight, Unix socket",
        SMALL,
        unix=True,
        stream=True,
        in_flight=32,
        least_rate=40_000,
    ),
    Case("open-loop", "B2 L4 D8, 2,000 a second, TCP", SMALL, in_flight=256, rate=2000),
    Case("medium", "B8 H16 L128 D64, TCP", (8, 16, 128, 64)),
    Case("long", "B1 H16 L1024 D64, TCP", (1, 16, 1024, 64)),
    Case("medium-oip", "B8 H16 L128 D64, inference, TCP", (8, 16, 128, 64), api="inference"),
    Case("long-oip", "B1 H16 L1024 D64, inference, TCP", (1, 16, 1024, 64), api="inference"),
    Case(
        "medium-shared",
        "B8 H16 L128 D64, inference, shared memory",
        (8, 16, 128, 64),
        api="inference",
        shared_memory=True,
        floor="compute",
        most_of_floor=1.1,
    ),
    Case(
        "long-shared",
        "B1 H16 L1024 D64, inference, shared memory",
        (1, 16, 1024, 64),
        api="inference",
        shared_memory=True,
        floor="compute",
        most_of_floor=1.1,
    ),
    Case("memory", "4 MiB tensors, 8 in flight, TCP", LARGE, in_flight=8, most_memory=1.3),
]
