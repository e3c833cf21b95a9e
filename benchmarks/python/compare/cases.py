"""What is compared: the cases, and what is wanted of each."""

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


def with_full(case: Case, *targets: Target) -> Case:
    """A masked case beside the same without its mask."""
    full = case.but(causal=False, window_left=-1, mean_length=0)
    return dataclasses.replace(
        case, targets=(peer(1.0), *targets), variants=(("unmasked", full),)
    )


L1024 = Case("l1024-d64", "B1 H16 L1024 D64")
L1024_D128 = Case("l1024-d128", "B1 H16 L1024 D128", width=128)
B8_L128 = Case("b8-l128", "B8 H16 L128 D64", batch=8, query_length=128)
L4096 = Case("l4096", "B1 H8 L4096 D64", query_heads=8, query_length=4096)
DECODE = Case("decode", "decode: B64 H1 Lq1 Lk4096 D64", batch=64, query_heads=1,
              query_length=1, key_length=4096, bound="memory")  # fmt: skip
GROUPED = Case("decode-grouped", "decode, grouped 4:1: B8 Hkv8 Lk4096 D128", batch=8,
               query_heads=32, kv_heads=8, query_length=1, key_length=4096, width=128,
               bound="memory")  # fmt: skip
ADDITIVE = Case("additive", "additive: B8 Lq128 Lk512 h64", batch=8, query_heads=1,
                query_length=128, key_length=512, scoring="additive",
                bound="tanh")  # fmt: skip
GAUSSIAN = Case("gaussian", "Gaussian: B8 Lq128 Lk512 D64", batch=8, query_heads=1,
                query_length=128, key_length=512, scoring="gaussian")  # fmt: skip


def with_targets(case: Case, *targets: Target) -> Case:
    return dataclasses.replace(case, targets=targets)


def with_weights(case: Case, ratio: float) -> Case:
    return dataclasses.replace(
        case,
        key=f"weights-{case.key}",
        title=f"weights returned: {case.title}",
        weights=True,
        targets=(peer(ratio),),
    )


def with_causal(case: Case) -> Case:
    return with_full(
        dataclasses.replace(
            case, key=f"causal-{case.key}", title=f"causal: {case.title}", causal=True
        ),
        Target("own", 1.85, "unmasked"),
    )


def stored_as(case: Case, dtype: str, ratio: float) -> Case:
    return dataclasses.replace(
        case,
        key=f"{case.key}-{dtype.lower()}",
        title=f"{dtype} {case.title}",
        dtype=dtype,
        targets=(peer(1.05), Target("own", ratio, "FP32")),
        variants=(("FP32", case.but()),),
    )


def prefilled_as(case: Case, dtype: str) -> Case:
    # FP16 is computed on AMX, which no peer does.
    on_amx = dtype == "FP16" and case.key == "l1024-d64"
    return dataclasses.replace(
        stored_as(case, dtype, 1.0),
        targets=(
            Target("peer", {"AVX3_AMX": 2.2 if on_amx else 1.3, "": 1.3}),
            Target("own", {"AVX3_AMX": 1.8 if on_amx else 1.0, "": 1.0}, "FP32"),
        ),
    )


# Shares of the peak rate of multiply-adds, by instruction set.
PEAK_D64 = Target("peak", {"AVX3": 0.80, "AVX2": 0.82})
PEAK_D128 = Target("peak", {"AVX3": 0.84, "AVX2": 0.85})

CASES: tuple[Case, ...] = (
    with_targets(L1024, peer(1.15), PEAK_D64),
    with_targets(L1024_D128, peer(1.15), PEAK_D128),
    with_targets(B8_L128, peer(1.15)),
    with_targets(L4096, peer(1.15), PEAK_D64),
    *(
        prefilled_as(case, dtype)
        for case in (L1024, L1024_D128, B8_L128, with_causal(L1024))
        for dtype in ("BF16", "FP16")
    ),
    with_weights(L1024, 1.15),
    with_weights(L1024_D128, 1.15),
    with_weights(B8_L128, 1.1),
    with_causal(L1024),
    with_causal(L4096),
    with_full(
        Case(
            "valid-lens",
            "valid_lens, mean 256: B8 H16 L512 D64",
            batch=8,
            query_length=512,
            mean_length=256,
        ),
        Target("pairs", 1.10, "unmasked"),
    ),
    with_full(
        # A row sees its own key and the 255 before it.
        L4096.but(
            key="window",
            title="causal window of 256: B1 H8 L4096 D64",
            causal=True,
            window_left=255,
        ),
        Target("pairs", 1.25, "unmasked"),
    ),
    dataclasses.replace(
        L1024,
        key="alibi",
        title="ALiBi: B1 H16 L1024 D64",
        alibi=True,
        targets=(peer(1.0), Target("own", 1 / 1.1, "without")),
        variants=(("without", L1024),),
    ),
    # No peer has them.
    dataclasses.replace(
        L1024,
        key="sinks",
        title="sinks: B1 H16 L1024 D64",
        sinks=True,
        peers=False,
        targets=(Target("own", 1 / 1.02, "without"),),
        variants=(("without", L1024),),
    ),
    with_targets(DECODE, peer(1.05), Target("read", 0.85)),
    with_targets(GROUPED, peer(1.05), Target("read", 0.85)),
    *(stored_as(DECODE, dtype, 2.0) for dtype in ("FP16", "BF16")),
    *(stored_as(GROUPED, dtype, 1.65) for dtype in ("FP16", "BF16")),
    with_targets(ADDITIVE, peer(20)),
    dataclasses.replace(
        GAUSSIAN,
        targets=(peer(1.6), Target("own", 1 / 1.05, "dot product")),
        variants=(("dot product", GAUSSIAN.but(scoring="dot")),),
    ),
    Case(
        "small",
        "small: B2 L4 D8, in process",
        batch=2,
        query_heads=1,
        query_length=4,
        width=8,
        bound="calls",
        targets=(Target("seconds", 0.5e-6),),
    ),
)


# Keys as servers have them: in pages, of sequences of unequal lengths. A model of 32 heads
# over 8 of width 128, as many models of 7 to 9 billion parameters have.
LLAMA = Case("", "", query_heads=32, kv_heads=8, width=128)
PAGED = LLAMA.but(page=64, query_length=1, bound="memory")
PEER_ON_PAGES = Target("peer", {"AVX3_AMX": 1.3, "": 1.15})


def in_types(case: Case, *targets: Target) -> tuple[Case, Case]:
    """In BF16, with its own target beside peers for decoding on AMX, and in FP32."""
    decodes = case.query_length == 1
    return tuple(
        dataclasses.replace(
            case,
            key=f"{case.key}-{dtype.lower()}",
            title=f"{dtype} {case.title}",
            dtype=dtype,
            targets=(
                PEER_ON_PAGES if decodes and dtype == "BF16" else peer(1.15),
                *targets,
            ),
        )
        for dtype in ("BF16", "FP32")
    )


READ = Target("read", 0.85)
PAGED_DECODE = PAGED.but(
    key="paged-decode",
    title="paged decode: B32 H32:8 Lk4096 D128",
    batch=32,
    key_length=4096,
)
PAGED_DECODE_1 = PAGED.but(
    key="paged-decode-1", title="paged decode: B1 H32:8 Lk32768 D128", key_length=32768
)
RAGGED_DECODE = PAGED.but(
    key="ragged-decode",
    title="ragged paged decode: B64 H32:8 Lk64 to 8192 D128",
    batch=64,
    lengths=(64, 8192),
)
PAGED_PREFILL = LLAMA.but(
    key="paged-prefill",
    title="paged prefill of 512 behind 4096: B1 H32:8 D128",
    page=64,
    query_length=512,
    key_length=4608,
    causal=True,
)
PACKED_PREFILL = LLAMA.but(
    key="packed-prefill",
    title="packed causal prefill: B32 H32:8 L16 to 2048 D128",
    batch=32,
    query_length=0,
    lengths=(16, 2048),
    causal=True,
)


def stored_smaller(dtype: str, ratio: float, *targets: Target) -> Case:
    """BF16 queries over keys and values of 8 bits, beside keys and values of FP32."""
    case = PAGED_DECODE.but(dtype="BF16", key_dtype=dtype)
    return dataclasses.replace(
        case,
        key=f"paged-decode-{dtype.lower()}",
        title=f"{dtype} keys, BF16 {PAGED_DECODE.title}",
        targets=(*targets, Target("own", ratio, "FP32 keys")),
        variants=(("FP32 keys", case.but(key_dtype="FP32")),),
    )


SEQUENCES: tuple[Case, ...] = (
    *in_types(PAGED_DECODE, READ),
    *in_types(PAGED_DECODE_1, READ),
    in_types(RAGGED_DECODE, READ)[0],  # in FP32, padded, it does not fit into memory
    *in_types(PAGED_PREFILL),
    *in_types(PACKED_PREFILL),
    stored_smaller("FP8", 3.3, PEER_ON_PAGES),
    # No peer has them.
    dataclasses.replace(stored_smaller("INT8", 3.3), peers=False),
)
CASES += SEQUENCES


def with_two_threads(case: Case, ratio: float) -> Case:
    return dataclasses.replace(
        case,
        key=f"two-threads-{case.key}",
        title=f"two threads: {case.title}",
        threads=2,
        targets=(
            peer(ratio),
            Target("own", 1.9, "one thread"),
            *((Target("read", 0.9),) if case.bound == "memory" else ()),
        ),
        variants=(("one thread", case.but(threads=1)),),
    )


# For cases large enough to share.
TWO_THREADS: tuple[Case, ...] = (
    *(with_two_threads(case, 1.15) for case in (L1024, L1024_D128, B8_L128, L4096)),
    with_two_threads(GROUPED, 1.05),
    *(
        with_two_threads(case, 1.15)
        for case in SEQUENCES
        if case.key in ("paged-decode-bf16", "ragged-decode-bf16", "packed-prefill-bf16")
    ),
)
