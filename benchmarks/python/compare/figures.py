"""From samples to figures: medians, rates, ratios, and whether a target was met."""

import statistics
from dataclasses import dataclass, field

from compare.case import Case, Target


@dataclass
class Result:
    """What was measured for a case. Lists hold one number for each round."""

    case: Case
    about: dict  # what attention-benchmark says of the case
    ours: list[float]  # seconds of a call
    variants: dict[str, list[float]] = field(default_factory=dict)
    peers: dict[str, list[float]] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)  # peers, and why
    limits: list[dict] = field(default_factory=list)

    def best_peer(self) -> str | None:
        """The peer with the shortest median."""
        return min(
            self.peers, key=lambda n: statistics.median(self.peers[n]), default=None
        )

    def pairs_share(self) -> float:
        return self.about["pairs_taking_part"] / self.about["pairs"]

    def flops(self) -> float:
        """Of the pairs that take part."""
        return self.about["flops"] * self.pairs_share()

    def share_of_limit(self) -> float | None:
        """Our rate over the machine's, round by round; the median. None where it has
        no limit of this kind."""
        work = {
            "arithmetic": ("flops", self.flops()),
            "memory": ("read", self.about["bytes"]),
        }
        if self.case.bound not in work:
            return None
        limit, amount = work[self.case.bound]
        return statistics.median(
            amount / ours / limits[limit]
            for ours, limits in zip(self.ours, self.limits)
        )

    def targets(self) -> list[Target]:
        """Those of the instruction set that it was measured with."""
        instruction_set = self.about["instruction_set"]
        return [t for target in self.case.targets if (t := target.on(instruction_set))]


# Of the run's usual limits: in a round that was below, the machine had other work.
ALONE = 0.9


def rounds_not_alone(results: list[Result]) -> list[int]:
    """For each result: rounds after which the rate of multiply-adds, or of reading
    memory, was more than a tenth below the run's median with as many threads."""
    usual: dict[tuple[int, str], list[float]] = {}
    for result in results:
        for limits in result.limits:
            for kind in ("flops", "read"):
                usual.setdefault((result.case.threads, kind), []).append(limits[kind])
    medians = {key: statistics.median(rates) for key, rates in usual.items()}

    def alone(result: Result, limits: dict) -> bool:
        return all(
            limits[kind] >= ALONE * medians[result.case.threads, kind]
            for kind in ("flops", "read")
        )

    return [sum(not alone(r, limits) for limits in r.limits) for r in results]


@dataclass
class Verdict:
    """A target beside what was measured."""

    measured: str
    wanted: str
    met: bool | None  # None: could not be told


def ratio(over: list[float], under: list[float]) -> float:
    """The median of the rounds' own ratios: both were measured moments apart."""
    return statistics.median(a / b for a, b in zip(over, under))


def spread(samples: list[float]) -> float:
    """The interquartile range over the median: how noisy the rounds were."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / statistics.median(samples)


def judge(result: Result, target: Target) -> Verdict:
    value = target.value
    if target.kind == "peer":
        name = result.best_peer()
        wanted = f">= {value:g}x"
        if name is None:
            return Verdict("no peer", wanted, None)
        measured = ratio(result.peers[name], result.ours)
        return Verdict(f"{measured:.2f}x the peer", wanted, measured >= value)
    if target.kind in ("peak", "read"):
        limit = "FMA peak" if target.kind == "peak" else "read rate"
        measured = result.share_of_limit()
        return Verdict(
            f"{measured:.0%} of {limit}",
            f">= {value:.0%}",
            measured >= value,
        )
    if target.kind == "seconds":
        measured = statistics.median(result.ours)
        return Verdict(duration(measured), f"<= {duration(value)}", measured <= value)
    against = result.variants[target.variant]
    if target.kind == "own":
        measured = ratio(against, result.ours)
        # "At least 0.952 times as fast" reads better turned round.
        if value < 1:
            return Verdict(
                f"{1 / measured:.2f}x the time of own {target.variant}",
                f"<= {1 / value:.2f}x",
                measured >= value,
            )
        return Verdict(
            f"{measured:.2f}x own {target.variant}", f">= {value:g}x", measured >= value
        )
    measured = ratio(result.ours, against) / result.pairs_share()
    return Verdict(
        f"{measured:.2f}x {result.pairs_share():.0%} of own {target.variant}",
        f"<= {value:.2f}x",
        measured <= value,
    )


def duration(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def rate(result: Result) -> str:
    """Our rate in the unit that says most of the case."""
    seconds = statistics.median(result.ours)
    case = result.case
    if case.bound == "memory":
        return f"{result.about['bytes'] / seconds * 1e-9:.1f} GB/s"
    if case.bound == "tanh":
        terms = result.about["pairs_taking_part"] * case.width
        return f"{terms / seconds * 1e-9:.1f} Gtanh/s"
    if case.bound == "calls":
        return f"{1e-6 / seconds:.2g} M calls/s"
    return f"{result.flops() / seconds * 1e-9:.0f} GFLOP/s"
