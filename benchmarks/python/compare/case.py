"""A case, and what is wanted of it."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """What is wanted of a case. The kinds, and what `value` is for each:

    peer: the best peer's time over ours, at least
    peak: our share of the peak rate of multiply-adds, at least
    read: our share of the rate of reading memory, at least
    own: the time of our variant `variant` over ours, at least
    pairs: our time over the share of the variant's that the pairs which take part have,
        at most
    seconds: our time, at most
    """

    kind: str
    # One for every instruction set, or by the beginning of the set's name.
    value: float | Mapping[str, float]
    variant: str = ""

    def on(self, instruction_set: str) -> "Target | None":
        """The target of that instruction set; None where there is none."""
        if not isinstance(self.value, Mapping):
            return self
        for name, value in self.value.items():
            if instruction_set.startswith(name):
                return dataclasses.replace(self, value=value)
        return None


@dataclass(frozen=True)
class Case:
    """One problem, in the words of attention-benchmark's flags."""

    key: str
    title: str
    batch: int = 1
    query_heads: int = 16
    kv_heads: int = 0  # 0: as many as query heads
    query_length: int = 1024
    key_length: int = 0  # 0: the query's
    # Of a packed batch: each entry's keys, spread evenly from the first of two to the
    # second. A query_length of 0 then means as many queries as keys.
    lengths: tuple[int, int] | None = None
    page: int = 0  # keys of a page; 0: one piece
    width: int = 64
    dtype: str = "FP32"
    key_dtype: str = ""  # of keys and values; empty: as dtype
    scoring: str = "dot"
    causal: bool = False
    window_left: int = -1  # -1: none
    mean_length: int = 0  # of valid_lens; 0: none
    alibi: bool = False
    sinks: bool = False
    weights: bool = False
    threads: int = 0  # 0: as many as the run is for
    peers: bool = True
    # What bounds it, and so which rate is shown: arithmetic, memory, tanh, calls.
    bound: str = "arithmetic"
    targets: tuple[Target, ...] = ()
    # The same in another form, measured in turns with it, by what it is called.
    variants: tuple[tuple[str, "Case"], ...] = ()

    @property
    def groups(self) -> int:
        """Query heads that read the same keys."""
        return self.query_heads // self.kv_heads if self.kv_heads else 1

    @property
    def keys(self) -> int:
        return self.key_length or self.query_length

    @property
    def stored_as(self) -> str:
        """The datatype of keys and values."""
        return self.key_dtype or self.dtype

    def memory_limit(self, threads: int) -> int:
        """Bytes beyond inputs and outputs, at most: of each thread, and what keeps an
        entry of a packed batch, and a page."""
        entries = self.batch if self.lengths else 0
        pages = self.batch * math.ceil(self.keys / self.page) if self.page else 0
        return (2 << 20) * threads + 3072 * entries + 512 * pages

    @property
    def is_plainly_causal(self) -> bool:
        """Causal as the peers' own flag has it: from the first key on, with no more."""
        square = self.query_length == self.keys
        return self.causal and square and self.window_left < 0 and not self.alibi

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.width)

    @property
    def sigma(self) -> float:
        """Of Gaussian scoring: what attention-benchmark takes."""
        return math.sqrt(self.width)

    def but(self, **changes) -> "Case":
        return dataclasses.replace(self, targets=(), variants=(), **changes)

    def flags(self, threads: int) -> list[str]:
        """attention-benchmark's flags for this case."""
        flags = {
            "batch": self.batch,
            "query-heads": self.query_heads,
            "kv-heads": self.kv_heads,
            "query-length": self.query_length,
            "key-length": self.key_length,
            "width": self.width,
            "dtype": self.dtype,
            "scoring": self.scoring,
            "threads": self.threads or threads,
        }
        if self.lengths:
            flags["lengths"] = ",".join(map(str, self.lengths))
        if self.page:
            flags["page"] = self.page
        if self.key_dtype:
            flags["key-dtype"] = self.key_dtype
        if self.window_left >= 0:
            flags["window"] = self.window_left
        if self.mean_length:
            flags["valid-lens"] = self.mean_length
        words = [word for name, v in flags.items() for word in (f"--{name}", str(v))]
        if self.causal:
            words.append("--causal")
        if self.alibi:
            words.append("--alibi")
        if self.sinks:
            words.append("--sinks")
        if self.weights:
            words.append("--weights")
        return words


def peer(value: float) -> Target:
    return Target("peer", value)
