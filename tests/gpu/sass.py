"""What the compiler made of kernels' main loops: counts of instructions.

Usage: sass.py LISTING        what cuobjdump -sass printed, demangled or not
       sass.py LISTING LIMITS.tsv
Prints a row for each instance, and for each option that it has code for: products in the loop over
tiles of keys (HMMA, or as many as make one of Hopper's, HGMMA); instructions that a tile of finite numbers within all rows' ranges takes,
per 128 products; all that the loop has; loads and stores of registers that were spilled. With
LIMITS, lines of such a row's name and the most of the second and the last figure that it may have,
ends with 1 where one has more or is not there.

The path is the one with the most products and copies of keys and values, with all that is marked as
the option's and nothing of others, and of those the shortest: it brings the next tile and passes
over what keys at the edges, large exponents or odd widths need. A bias has the type of the values.

Of attend, FP32 without tensor cores, a product is a multiply-add of a warp (FFMA), and the loops are
the innermost ones over scores and over values: what shared memory is read in.
"""
import collections
import itertools
import re
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
FUNCTION = re.compile(r"^\s+Function : (\S+)")
ARCHITECTURE = re.compile(r"^arch = (sm_\w+)")
INSTANCE = re.compile(r"AttendMmaINS\d?_?\d*_?11MmaInstanceINS0_(?:4Half|5Brain)ELi(\d+)ELi(\d+)E"
                      r"(.*?)EEEEEv")
TILES_INSTANCE = re.compile(r"6AttendILNS\d?_?\d*_?5ScoreE(\d)ELi(\d)ELi(\d)E")
SCORES = ("dot", "additive", "gaussian")
WGMMA_INSTANCE = re.compile(r"WgmmaMainloopINS\w*?(4Half|5Brain).*?Li(\d+)E")
# Each warp's part of a product of four warps, 16 x N x 16, is N / 8 of the older ones, 16 x 8 x 16.
WGMMA = re.compile(r"HGMMA\.64x(\d+)x16\.")
# What only an option's code has.
MARKS = {
    "softcap": re.compile(r"MUFU\.RCP "),
    "alibi": re.compile(r"FMUL\S* .*\|"),
    # Widens numbers of 16 bits.
    "bias": re.compile(r"HADD2\.F32 |IMAD\.U32 .*, 0x10000, RZ|LOP3\.LUT .*, 0xffff0000, RZ, 0xc0"),
    "mask": re.compile(r"LOP3\.LUT P\d, RZ, R\w+, (?:0xff|0xff00|0xff0000|-0x1000000), "),
    "dropout": re.compile(r"(?:0xd2511f53|-0x2daee0ad)"),
}
Instruction = collections.namedtuple("Instruction", "address predicate name operands")


def name_of(function):
    """ "BF16_D128_rows128_plain", "BF16_D128_rows16_entries", "BF16_D128_wgmma", or None."""
    if found := WGMMA_INSTANCE.search(function):
        return f"{'FP16' if found[1] == '4Half' else 'BF16'}_D{found[2]}_wgmma"
    if found := TILES_INSTANCE.search(function):
        entries = "_entries" if "OfEntries" in function else ""
        return (f"FP32_{SCORES[int(found[1])]}_Dv{64 * int(found[2])}_rows{64 * int(found[3])}"
                f"{entries}")
    found = INSTANCE.search(function)
    if not found:
        return None
    kind = "FP16" if "4Half" in function else "BF16"
    # Whether it has code for options, and for pages: that of several entries.
    options = "entries" if found[3].endswith("Lb1ELb1") else (
        "options" if found[3].startswith("Lb1") else "plain")
    return f"{kind}_D{found[1]}_rows{found[2]}_{options}"


def functions_of(path):
    """(architecture, mangled name) -> instructions, in order."""
    found = {}
    architecture, code = "", []  # the functions that follow are of it
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if match := ARCHITECTURE.match(line):
                architecture = match[1]
            elif match := FUNCTION.match(line):
                code = found.setdefault((architecture, match[1]), [])
            elif match := INSTRUCTION.match(line):
                code.append(Instruction(int(match[1], 16), (match[2] or "").strip(), match[3],
                                        match[4]))
    return found


def target_of(instruction):
    """Where a branch goes, None for what is no branch."""
    if not instruction.name.startswith("BRA"):
        return None
    found = re.search(r"0x([0-9a-f]+)", instruction.operands)
    return int(found[1], 16) if found else None


def products_of(instruction):
    """How many products of HMMA's size it is."""
    if found := WGMMA.match(instruction.name):
        return int(found[1]) // 8
    return int(instruction.name.split(".")[0] == "HMMA")


def main_loop(code, name):
    """First and last index of the smallest loop that holds the most products; of Hopper's kernels,
    which wait in loops around others, of the smallest that holds any."""
    index = {instruction.address: n for n, instruction in enumerate(code)}
    products = [0]
    for instruction in code:
        products.append(products[-1] + products_of(instruction))
    best = None
    for last, instruction in enumerate(code):
        first = index.get(target_of(instruction))
        if first is None or first > last:
            continue
        held = products[last + 1] - products[first]
        key = (-(held > 0 if name.endswith("_wgmma") else held), last - first)
        if best is None or key < best[0]:
            best = key, first, last
    return best[1:] if best and best[0][0] < 0 else None


def copies_of(name, option):
    """Copies of a tile of mask or bias that a thread starts; those of keys have no predicate."""
    if option not in ("mask", "bias"):
        return 0
    width, rows = (int(re.search(part + r"(\d+)", name)[1]) for part in ("_D", "_rows"))
    thread_rows = max(rows // 32, 2)
    thread_keys = (32 if rows == 16 else 64) // (2 if width == 256 else 1) // 4
    bytes_of_key = {"mask": 1, "bias": 2}[option]
    return thread_rows * -(-thread_keys * bytes_of_key // 16)


def worth_of(instruction, option):
    """Products and copies; what is marked as the option's, less what is another's; how many copies
    of mask or bias it may be."""
    name = instruction.name.split(".")[0]
    text = instruction.name + instruction.operands
    if name == "LDGSTS":
        if not re.search(r", !?U?P\d\s*$", instruction.operands):
            return 1, 0, (0,)
        return 0, 0, (0, 1) if instruction.predicate else (1,)
    marked = 0
    for of, mark in MARKS.items():
        if mark.search(text):
            marked += 1 if of == option else -1000
    return products_of(instruction), marked, (0,)


def nexts_of(code, index, n, last):
    """Instructions of the loop that may follow the one at n."""
    instruction = code[n]
    target = index.get(target_of(instruction))
    ends = instruction.name in ("EXIT", "RET") and not instruction.predicate
    always = instruction.name.startswith("BRA") and not instruction.predicate \
        and not re.match(r"\s*U?P", instruction.operands)
    found = [target] if target is not None and n < target <= last else []
    return found if ends or always else found + [n + 1]


def shortest_path(code, first, last, option, copies):
    """Instructions on the way through the loop, and how many of each name."""
    index = {instruction.address: n for n, instruction in enumerate(code)}
    # From each instruction to the loop's end, by the number of copies of mask or bias:
    # (products and copies, marks, -instructions), next, its number of copies.
    way = {last: {0: ((0, 0, -1), None, 0)}}
    for n in range(last - 1, first - 1, -1):
        worth, marked, copied = worth_of(code[n], option)
        ways = {}
        for m in nexts_of(code, index, n, last):
            for (done, (best, *_)), more in itertools.product(way.get(m, {}).items(), copied):
                one = (best[0] + worth, best[1] + marked, best[2] - 1)
                if done + more <= copies and (done + more not in ways or
                                              one > ways[done + more][0]):
                    ways[done + more] = one, m, done
        way[n] = ways
    if copies not in way[first]:
        return None
    names, n, left = collections.Counter(), first, copies
    while n is not None:
        names[code[n].name.split(".")[0]] += 1
        names["products"] += products_of(code[n])
        _, n, left = way[n][left]
    return names


def tiles_figures(code):
    """Of the innermost loops, a fourth of which are FFMA: FFMA, instructions per 128 of them,
    instructions."""
    index = {instruction.address: n for n, instruction in enumerate(code)}
    products = [0, *itertools.accumulate(int(i.name == "FFMA") for i in code)]
    loops = [(index.get(target_of(i), n), n + 1) for n, i in enumerate(code)]
    chosen = []
    for first, end in sorted(loops, key=lambda loop: loop[1] - loop[0]):
        if 4 * (products[end] - products[first]) > end - first > 1 and \
                not any(first <= inner and last <= end for inner, last in chosen):
            chosen.append((first, end))
    multiplied = sum(products[end] - products[first] for first, end in chosen)
    length = sum(end - first for first, end in chosen)
    return multiplied, round(length * 128 / max(multiplied, 1)), length


def figures_of(code, name, option):
    """products, instructions per 128 of them, instructions of the loop, spills."""
    spills = sum(i.name.split(".")[0] in ("LDL", "STL") for i in code)
    if name.startswith("FP32"):
        return *tiles_figures(code), spills
    loop = main_loop(code, name)
    names = shortest_path(code, *loop, option, copies_of(name, option)) if loop else None
    if not names:
        return 0, 0, 0, spills
    products = names.pop("products")
    return (products, round(sum(names.values()) * 128 / max(products, 1)),
            loop[1] - loop[0] + 1, spills)


def exceeded(found, path):
    """What is wrong, in words."""
    with open(path, encoding="utf-8") as lines:
        limits = [line.split() for line in lines if line.strip() and line[0] != "#"]
    for name, most, most_spills in limits:
        of_name = [figures for (_, instance), figures in found.items() if instance == name]
        if not of_name:
            yield f"{name}: there is no such instance"
        for _, instructions, _, spills in of_name:
            if instructions > int(most):
                yield f"{name}: {instructions} instructions per 128 products (at most {most})"
            if spills > int(most_spills):
                yield f"{name}: {spills} accesses to spilled registers (at most {most_spills})"


def without_registers(name, code):
    """Whether one of Hopper's kernels lacks what moves registers from the warps that bring tiles to
    those that multiply, which the compiler drops where it does not know how many there are."""
    return name.endswith("_wgmma") and not any(i.name.startswith("USETMAXREG") for i in code)


def main():
    found, wrong = {}, []
    for (architecture, function), code in functions_of(sys.argv[1]).items():
        if name := name_of(function):
            if without_registers(name, code):
                wrong.append(f"{name}: no USETMAXREG")
            found[architecture, name] = figures_of(code, name, None)
            for option in MARKS if name.endswith("_options") else ():
                found[architecture, f"{name}_{option}"] = figures_of(code, name, option)
    print("| architecture | instance | products | instructions per 128 | loop | spills |")
    print("|---|---|---|---|---|---|")
    for (architecture, name), figures in sorted(found.items()):
        print(f"| {architecture} | {name} | " + " | ".join(map(str, figures)) + " |")
    if len(sys.argv) > 2:
        wrong += exceeded(found, sys.argv[2])
    for line in wrong:
        print("FAILED:", line)
    sys.exit(1 if wrong or not found else 0)


if __name__ == "__main__":
    main()
