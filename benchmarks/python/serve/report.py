"""What was measured, as a table and as JSON."""

import statistics
from dataclasses import dataclass, field

from compare.report import MET, Table
from serve.cases import Case


@dataclass
class Result:
    """The rounds of one case: ours and its floor's, as attention-load prints."""

    case: Case
    rounds: list[dict] = field(default_factory=list)
    floors: list[dict] = field(default_factory=list)
    peak_bytes: int = 0

    def middle(self, *path: str) -> float:
        return _middle(self.rounds, path)

    def of_floor(self) -> float | None:
        """The median of the rounds' ratios of medians, computing taken off."""
        if not self.floors:
            return None
        return statistics.median(
            ours["transport_us"]["p50"] / floor["latency_us"]["p50"]
            for ours, floor in zip(self.rounds, self.floors)
        )

    def of_bytes(self) -> float | None:
        if self.case.most_memory is None:
            return None
        return self.peak_bytes / self.case.bytes_in_flight()

    def verdict(self) -> tuple[str, str, bool | None]:
        """What was measured, what is wanted, and whether it was met."""
        case, ratio, memory = self.case, self.of_floor(), self.of_bytes()
        if memory is not None:
            measured = f"{self.peak_bytes / 2**20:.0f} MiB, {memory:.2f}x the bytes"
            return measured, f"<= {case.most_memory}x", memory <= case.most_memory
        if case.least_rate is not None:
            rate = self.middle("calls_per_second")
            return f"{rate:,.0f} a second", f">= {case.least_rate:,.0f}", rate >= case.least_rate
        if ratio is None:
            return "-", "-", None
        measured = f"{ratio:.2f}x {case.floor}"
        if case.most_of_floor is None:
            return measured, "-", None
        return measured, f"<= {case.most_of_floor}x", ratio <= case.most_of_floor

    def json(self) -> dict:
        measured, wanted, met = self.verdict()
        return {
            "name": self.case.name,
            "title": self.case.title,
            "rounds": self.rounds,
            "floors": self.floors,
            "peak_bytes": self.peak_bytes,
            "measured": measured,
            "wanted": wanted,
            "met": met,
        }


def _middle(rounds: list[dict], path: tuple[str, ...]) -> float:
    values = []
    for entry in rounds:
        for key in path:
            entry = entry[key]
        values.append(entry)
    return statistics.median(values)


def _time(microseconds: float) -> str:
    if microseconds >= 1000:
        return f"{microseconds / 1000:.3g} ms"
    return f"{microseconds:.3g} us"


def table(results: list[Result], title: str) -> Table:
    heads = ["case", "calls/s", "MiB/s", "p50", "p90", "p99", "without computing", "floor"]
    rows = []
    for result in results:
        floor = _time(_middle(result.floors, ("latency_us", "p50"))) if result.floors else "-"
        measured, wanted, met = result.verdict()
        rows.append(
            [
                result.case.title,
                f"{result.middle('calls_per_second'):,.0f}",
                f"{result.middle('bytes_per_second') / 2**20:,.0f}",
                *[_time(result.middle("latency_us", q)) for q in ("p50", "p90", "p99")],
                _time(result.middle("transport_us", "p50")),
                floor,
                *[measured, wanted, MET[met]],
            ]
        )
    return Table(title, [*heads, "measured", "wanted", ""], rows)
