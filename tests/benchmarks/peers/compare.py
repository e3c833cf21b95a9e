"""Measures every case: ours, variants of ours, and every peer, in turns."""

import pathlib
import sys
import time

from peers import onnxruntime_peer, openvino_peer, torch_peer
from peers.cases import Case
from peers.expected import Expected
from peers.figures import Result
from peers.measure import CannotDo, Contender, take_turns
from peers.ours import Limits, Ours

PEERS = (torch_peer, onnxruntime_peer, openvino_peer)
LIMITS_SECONDS = 0.2
_start = time.monotonic()


def say(words: str, end: str = "\n") -> None:
    """Progress, with the seconds since the run began."""
    print(f"[{time.monotonic() - _start:4.0f}s] {words}", end=end, file=sys.stderr, flush=True)


def reason_of(error: Exception) -> str:
    """The first line that says something, cut to fit into a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # OpenVINO says first where in its source it found out.
    telling = [line for line in lines if " failed at " not in line and "Exception from" not in line]
    text = (telling or lines or [type(error).__name__])[0]
    return text if len(text) <= 160 else text[:157] + "..."


def ready_peers(case: Case, tensors: dict, expected: Expected):
    """The peers that compute the case rightly, and why the others do not."""
    ready: list[Contender] = []
    cannot: dict[str, str] = {}
    for module in PEERS:
        for name, make in module.offers(case).items():
            try:
                peer = make(case, tensors)
                wrong = expected.error_in(peer.results())
            except Exception as error:  # whatever it is, it is the peer's answer
                prefix = "" if isinstance(error, CannotDo) else "fails: "
                cannot[name] = prefix + reason_of(error)
                continue
            if wrong:
                cannot[name] = wrong
            else:
                ready.append(peer)
    return ready, cannot


def measure_case(
    binary: pathlib.Path, case: Case, limits: Limits, threads: int, rounds: int, seconds: float
) -> Result:
    """Raises CannotDo where we ourselves have no right answer."""
    contenders: list[Contender] = []
    try:
        ours = Ours("ours", binary, case, threads)
        contenders.append(ours)
        expected = Expected(case, ours.tensors)
        if wrong := expected.error_in(ours.results()):
            raise CannotDo(wrong)
        for name, variant in case.variants:
            contenders.append(Ours(name, binary, variant, threads))
        ready, cannot = [], {}
        if case.peers:
            ready, cannot = ready_peers(case, ours.tensors, expected)
        contenders += ready
        for name, why in cannot.items():
            say(f"{case.key}:   {name}: {why}")
        say(f"{case.key}: {len(contenders)} take turns, {rounds} rounds ", end="")
        measured: list[dict] = []

        def after_round() -> None:
            measured.append(limits.measure(LIMITS_SECONDS))
            print(".", end="", file=sys.stderr, flush=True)

        samples = take_turns(contenders, rounds, seconds, after_round)
        print(file=sys.stderr)
        return Result(
            case=case,
            about=ours.about,
            ours=samples["ours"],
            variants={name: samples[name] for name, _ in case.variants},
            peers={peer.name: samples[peer.name] for peer in ready},
            cannot=cannot,
            limits=measured,
        )
    finally:
        for contender in contenders:
            contender.close()


def start_peers(threads: int) -> None:
    for module in PEERS:
        module.start(threads)
