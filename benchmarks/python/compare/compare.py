"""Measures every case: ours, variants of ours, and every peer, in turns."""

import pathlib
import pickle
import sys
import tempfile

from compare.case import Case
from compare.expected import Expected
from compare.figures import Result
from compare.library import Library
from compare.measure import CannotDo, Contender, Crashed, take_turns
from compare.ours import Limits, Ours
from compare.progress import say

LIBRARIES = ("compare.torch_peer", "compare.onnxruntime_peer", "compare.openvino_peer")
LIMITS_SECONDS = 0.2


def libraries(threads: int, vllm: pathlib.Path | None) -> list[Library]:
    """All peers. vLLM's folder, if any, has its library and an environment of its own:
    it needs another PyTorch."""
    found = [Library(name, threads) for name in LIBRARIES]
    if vllm is not None:
        found.append(vllm_library(threads, vllm))
    return found


def vllm_library(threads: int, folder: pathlib.Path) -> Library:
    return Library(
        "compare.vllm_peer",
        threads,
        {"VLLM_LIBRARY": str(folder / "vllm/_C.abi3.so")},
        folder / "venv/bin/python",
    )


def offers_of(library: Library, case: Case, cannot: dict[str, str]) -> list[str]:
    """The contenders of a library; none, and the reason, where it does not even start."""
    try:
        return library.offers(case)
    except CannotDo as error:
        cannot[library.module_name] = str(error)
        return []


def ready_peers(case: Case, folder: pathlib.Path, libraries: list[Library]):
    """The peers that compute the case rightly, and why the others do not."""
    ready: list[Contender] = []
    cannot: dict[str, str] = {}

    def make(library: Library, name: str, called: str) -> bool:
        """False where it crashed: it may do better in another environment."""
        try:
            peer = library.make(name, case, folder)
            peer.name = called
            ready.append(peer)
        except CannotDo as error:
            cannot[called] = str(error)
            say(f"{case.key}:   {called}: {error}")
            return not isinstance(error, Crashed)
        return True

    for library in libraries:
        library.forget()
        library.without_amx.forget()
        for name in offers_of(library, case, cannot):
            if not make(library, name, name):
                make(library.without_amx, name, f"{name}, without AMX")
    return ready, cannot


def measure_case(
    binary: pathlib.Path,
    case: Case,
    limits: Limits,
    libraries: list[Library],
    threads: int,
    rounds: int,
    seconds: float,
) -> Result:
    """Raises CannotDo where we ourselves have no right answer."""
    contenders: list[Contender] = []
    measured: list[dict] = []

    def after_round() -> None:
        measured.append(limits.measure(LIMITS_SECONDS))
        print(".", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            ours = Ours("ours", binary, case, threads, folder / "case.safetensors")
            contenders.append(ours)
            expected = Expected(case, ours.tensors)
            if wrong := expected.error_in(ours.results()):
                raise CannotDo(wrong)
            (folder / "expected").write_bytes(pickle.dumps(expected))
            ours.tensors.clear()
            for variant_name, variant in case.variants:
                contenders.append(Ours(variant_name, binary, variant, threads))
            peers, cannot = [], {}
            if case.peers:
                peers, cannot = ready_peers(case, folder, libraries)
            contenders += peers
            say(f"{case.key}: {len(contenders)} take turns, {rounds} rounds ", end="")
            samples, dropped = take_turns(contenders, rounds, seconds, after_round)
            print(file=sys.stderr)
        finally:
            for contender in contenders:
                contender.close()
    if fatal := [n for n in ("ours", *dict(case.variants)) if n in dropped]:
        raise CannotDo("; ".join(f"{n}: {dropped[n]}" for n in fatal))
    return Result(
        case=case,
        about=ours.about,
        ours=samples["ours"],
        variants={name: samples[name] for name, _ in case.variants},
        peers={p.name: samples[p.name] for p in peers if p.name in samples},
        cannot={**cannot, **dropped},
        limits=measured,
    )
