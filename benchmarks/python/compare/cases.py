"""What is compared: the cases, and what is wanted of each."""

import dataclasses

from compare.case import Case, Target, peer


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
    *(stored_as(case, d, 1.8) for case in (DECODE, GROUPED) for d in ("FP16", "BF16")),
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


def beside_fp32(case: Case) -> Case:
    """A case of decoding, which reads half the bytes, beside the same in FP32."""
    return dataclasses.replace(
        case,
        targets=(*case.targets, Target("own", 1.8, "FP32")),
        variants=(("FP32", case.but(dtype="FP32")),),
    )


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


def paged_in_types(case: Case) -> tuple[Case, Case]:
    bf16, fp32 = in_types(case, READ)
    return beside_fp32(bf16), fp32


SEQUENCES: tuple[Case, ...] = (
    *paged_in_types(PAGED_DECODE),
    *paged_in_types(PAGED_DECODE_1),
    in_types(RAGGED_DECODE, READ)[0],  # in FP32, padded, it does not fit into memory
    *in_types(PAGED_PREFILL),
    *in_types(PACKED_PREFILL),
    stored_smaller("FP8", 3.3, PEER_ON_PAGES),
    # No peer has them.
    dataclasses.replace(stored_smaller("INT8", 3.3), peers=False),
)
CASES += SEQUENCES


def beside_rectangle(
    key: str, title: str, batch: int, lengths: tuple[int, int], rectangle: dict, **shape
) -> tuple[Case, ...]:
    """A packed batch of unequal entries, in both types, beside as many pairs of queries
    and keys as a rectangle, and as a packed batch of equal entries, which lies in memory
    as it does: token after token. Peers only where `shape` says so: SEQUENCES has them."""
    case = LLAMA.but(**{"batch": batch, "peers": False} | shape)

    def of(dtype: str) -> Case:
        equal = case.but(dtype=dtype, **rectangle)
        return dataclasses.replace(
            case,
            key=f"ragged-{key}-{dtype.lower()}",
            title=f"{dtype} packed {title}",
            dtype=dtype,
            lengths=lengths,
            targets=(
                *((peer(1.15),) if case.peers else ()),
                Target("own", 1 / 1.1, "rectangle"),
                Target("own", 1 / 1.1, "equal entries"),
            ),
            variants=(
                ("rectangle", equal),
                ("equal entries", equal.but(lengths=(equal.keys, equal.keys))),
            ),
        )

    return of("BF16"), of("FP32")


NARROW = {"query_heads": 8, "kv_heads": 8, "width": 64}
STEP = {"query_length": 1, "bound": "memory"}
RAGGED: tuple[Case, ...] = (
    *beside_rectangle(
        "prefill", "prefill: B64 H32:8 L16 to 512 D128", 64, (16, 512),
        {"query_length": 301}, query_length=0, peers=True,  # nested tensors, too
    ),
    *beside_rectangle(
        "prefill-short", "prefill: B64 H8 L16 to 112 D64", 64, (16, 112),
        {"query_length": 69, "key_length": 70}, query_length=0, **NARROW,
    ),
    *beside_rectangle(
        "steps", "decode: B64 H32:8 Lk64 to 2048 D128", 64, (64, 2048),
        {"key_length": 1056}, **STEP,
    ),
    *beside_rectangle(
        "steps-short", "decode: B512 H8 Lk9 to 24 D64", 512, (9, 24),
        {"key_length": 16}, **STEP, **NARROW,
    ),
)  # fmt: skip


def beside_one_piece(case: Case, ratio: float) -> tuple[Case, ...]:
    """A case from pages beside the same from one piece."""
    return tuple(
        dataclasses.replace(
            case,
            key=f"{case.key}-{page}-{(key_dtype or dtype).lower()}",
            title=f"{key_dtype or dtype} {case.title}, pages of {page}",
            dtype=dtype,
            key_dtype=key_dtype,
            page=page,
            peers=False,
            targets=(Target("own", ratio, "one piece"),),
            variants=(
                ("one piece", case.but(dtype=dtype, key_dtype=key_dtype, page=0)),
            ),
        )
        for page in (16, 64)
        for dtype, key_dtype in (("BF16", ""), ("FP32", ""), ("BF16", "INT8"))
    )


PAGES: tuple[Case, ...] = (
    *beside_one_piece(
        PAGED.but(key="pages-decode", title="decode: B8 H32:8 Lk4096 D64", batch=8,
                  key_length=4096, width=64), 0.95,
    ),
    *beside_one_piece(
        PAGED_PREFILL.but(key="pages-prefill",
                          title="prefill of 512 behind 4096: B1 H32:8 D128"), 0.97,
    ),
)  # fmt: skip
CASES += RAGGED + PAGES


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
