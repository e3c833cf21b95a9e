"""benchmarks/compare: see --help."""

import argparse
import functools
import json
import pathlib
import sys

from compare.cases import CASES, L1024, TWO_THREADS, Case
from compare.progress import say

# Lengths at which the peak of memory is shown; few queries where all would take long.
MEMORY_CASES = tuple(
    L1024.but(query_heads=heads, query_length=queries, key_length=keys, **others)
    for heads, queries, keys, others in (
        (4, 1024, 1024, {}),
        (1, 16384, 16384, {}),
        (1, 16384, 131072, {}),
        (8, 1, 131072, {}),
        (4, 1024, 1024, {"weights": True}),
        (4, 1, 131072, {"dtype": "BF16"}),
        (1, 128, 16384, {"scoring": "additive"}),
        (1, 1024, 16384, {"scoring": "gaussian"}),
        (4, 1, 65536, {"dtype": "BF16", "page": 16}),
        (1, 0, 0, {"batch": 4096, "lengths": (8, 24)}),
    )
)

EPILOG = """\
Every contender computes the same numbers, is checked against FP64 in NumPy, and then
measured for a short time in every round, one after the other. Leave the machine alone
meanwhile. A full run takes about 40 minutes, --quick a third of that.

examples:
  benchmarks/compare --quick --cases l1024-d64,decode
  benchmarks/compare --two-threads --markdown docs/performance/peers --summary README.md
  benchmarks/compare --threads 2 --cases l4096
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/compare",
        description="Measures our attention beside PyTorch's, ONNX Runtime's, OpenVINO's "
        "and vLLM's, and beside the machine's own limits, in one run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cases", metavar="A,B", help="only these; 'none' for no case at all"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument(
        "--threads", type=int, default=1, help="of everyone (default: 1)"
    )
    parser.add_argument("--rounds", type=int, help="default: 9, or 3 with --quick")
    parser.add_argument(
        "--seconds", type=float, help="of a turn; default: 0.4, or 0.2 with --quick"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds, to try things"
    )
    parser.add_argument(
        "--two-threads",
        action="store_true",
        help="also two threads, beside peers with two and beside one",
    )
    parser.add_argument(
        "--no-memory", action="store_true", help="leave out the peak of memory"
    )
    parser.add_argument(
        "--markdown",
        type=pathlib.Path,
        metavar="FOLDER",
        help="write the tables to a page in FOLDER that is named after this machine, in "
        "place of those of its last run",
    )
    parser.add_argument(
        "--summary",
        type=pathlib.Path,
        metavar="FILE",
        help="write a few rows; where FILE has the lines that say so, between them",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="write every sample"
    )
    parser.add_argument(
        "--binary", type=pathlib.Path, required=True, help=argparse.SUPPRESS
    )
    parser.add_argument("--vllm", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(args: argparse.Namespace) -> list[Case]:
    known = {case.key: case for case in (*CASES, *TWO_THREADS)}
    if args.list:
        print("\n".join(f"{key:28} {case.title}" for key, case in known.items()))
        sys.exit()
    if args.cases == "none":
        return []
    if not args.cases:
        return [*CASES, *(TWO_THREADS if args.two_threads else ())]
    keys = args.cases.split(",")
    if unknown := [key for key in keys if key not in known]:
        sys.exit(f"compare: unknown case {', '.join(unknown)}; --list shows the cases")
    two = TWO_THREADS if args.two_threads else ()
    return [known[key] for key in keys] + [c for c in two if c.key not in keys]


def main() -> int:
    args = arguments()
    cases = chosen(args)
    # Only now: --help and --list do without the packages that these need.
    from compare import machine, report
    from compare.compare import libraries, measure_case
    from compare.library import Library
    from compare.measure import CannotDo
    from compare.ours import Limits, peak_memory

    rounds = args.rounds or (3 if args.quick else 9)
    seconds = args.seconds or (0.2 if args.quick else 0.4)

    @functools.cache
    def peers_of(threads: int) -> list[Library]:
        return libraries(threads, args.vllm)

    @functools.cache
    def limits(threads: int) -> Limits:
        return Limits(args.binary, threads)

    about = machine.describe(
        limits(args.threads).benchmark.about["instruction_set"],
        args.threads,
        rounds,
        args.vllm,
    )
    results, failed = [], 0
    for n, case in enumerate(cases):
        say(
            f"{case.key}: {case.title} ({n + 1} of {len(cases)}); making everyone ready"
        )
        threads = case.threads or args.threads
        try:
            results.append(
                measure_case(
                    args.binary,
                    case,
                    limits(threads),
                    peers_of(threads),
                    threads,
                    rounds,
                    seconds,
                )
            )
        except KeyboardInterrupt:
            print(file=sys.stderr)
            say("stopped; the tables show what was finished")
            args.no_memory = True
            break
        except CannotDo as error:
            say(f"{case.key}: OURS FAILS: {error}")
            failed += 1
    for threads in {args.threads, *(case.threads or args.threads for case in cases)}:
        for process in (limits(threads), *peers_of(threads)):
            process.close()
    memory = []
    for case in () if args.no_memory else MEMORY_CASES:
        say(f"peak of memory ({len(memory) + 1} of {len(MEMORY_CASES)})")
        memory.append(peak_memory(args.binary, case, args.threads))

    tables = []
    if results:
        tables = [report.targets_table(results), report.peers_table(results)]
    if memory:
        tables.append(report.memory_table(memory))
    lines = [report.machine_lines(about)]
    if results:
        lines += [report.limits_line(results), report.alone_line(results), report.NOTE]
    print("\n" + "\n".join(table.text() for table in tables))
    print("\n".join(lines))
    if args.markdown:
        text = "\n".join(table.markdown() for table in tables)
        page = report.write_machine_page(
            args.markdown, about, f"{' '.join(lines)}\n\n{text}"
        )
        print(f"written to {page}")
    if args.summary and results:
        text = report.summary_table(results).markdown()
        report.write_summary(args.summary, f"{text}\n{lines[0]}\n")
    if args.json:
        content = report.as_json(about, results, memory)
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
