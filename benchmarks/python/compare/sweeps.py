"""What the roofline sweeps over, and what it measures."""

from dataclasses import dataclass

from compare.case import Case

BASE = Case("", "", batch=1, query_heads=8, query_length=1024, width=64)
SWEEPS: dict[str, tuple[Case, ...]] = {
    "length": tuple(BASE.but(query_length=2**n) for n in range(4, 13)),
    "keys of one query": tuple(
        BASE.but(query_length=1, key_length=2**n) for n in range(8, 18)
    ),
    "queries": tuple(
        BASE.but(query_length=2**n, key_length=16384) for n in range(0, 8)
    ),
    "width": tuple(BASE.but(width=w) for w in (8, 16, 32, 64, 128, 256)),
    "heads": tuple(BASE.but(query_heads=h) for h in (1, 2, 4, 8, 16)),
}


@dataclass
class Point:
    """A shape that was measured. Bytes are inputs and outputs, each counted once."""

    sweep: str
    shape: str
    seconds: float
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        return self.flops / self.seconds


@dataclass
class Roof:
    """The machine's two limits: flops and bytes per second."""

    flops: float
    read: float

    def at(self, intensity: float) -> float:
        return min(self.flops, self.read * intensity)

    @property
    def ridge(self) -> float:
        """The intensity from which arithmetic is the limit, no longer memory."""
        return self.flops / self.read
