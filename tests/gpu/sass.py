"""What the compiler made of the tensor cores' kernel: counts of instructions in its main loop.

Usage: sass.py LISTING        what cuobjdump -sass printed, demangled or not
       sass.py LISTING LIMITS.tsv
Prints a row for each instance: products (HMMA) in the loop over tiles of keys; instructions that
a tile of finite numbers within all rows' ranges takes, per 128 products; all that the loop has;
loads and stores of registers that were spilled. With LIMITS, lines of an instance's name and the
most of the second and the last figure that it may have, ends with 1 where one has more or is not
there.

The path is the one with the most products and copies, and of those the shortest: it brings the
next tile and passes over what keys at the edges, large exponents or odd widths need.
"""
import collections
import re
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
FUNCTION = re.compile(r"^\s+Function : (\S+)")
ARCHITECTURE = re.compile(r"^arch = (sm_\w+)")
INSTANCE = re.compile(r"AttendMmaINS\d?_?\d*_?11MmaInstanceINS0_(?:4Half|5Brain)ELi(\d+)ELi(\d+)E"
                      r"(.*?)EEEEEv")
Instruction = collections.namedtuple("Instruction", "address predicate name operands")


def name_of(function):
    """ "BF16_D128_tiles2_plain", or None."""
    found = INSTANCE.search(function)
    if not found:
        return None
    kind = "FP16" if "4Half" in function else "BF16"
    plain = "plain" if found[3].startswith("Lb1") else "masked"
    return f"{kind}_D{found[1]}_tiles{found[2]}_{plain}"


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


def main_loop(code):
    """First and last index of the smallest loop that holds the most products."""
    index = {instruction.address: n for n, instruction in enumerate(code)}
    products = [0]
    for instruction in code:
        products.append(products[-1] + (instruction.name.split(".")[0] == "HMMA"))
    best = None
    for last, instruction in enumerate(code):
        first = index.get(target_of(instruction))
        if first is None or first > last:
            continue
        key = (-(products[last + 1] - products[first]), last - first)
        if best is None or key < best[0]:
            best = key, first, last
    return best[1:] if best and best[0][0] < 0 else None


def shortest_path(code, first, last):
    """Instructions on the way through the loop, and how many of each name."""
    index = {instruction.address: n for n, instruction in enumerate(code)}
    # From each instruction to the loop's end: (products and copies, -instructions, next).
    way = {last: (0, -1, None)}
    for n in range(last - 1, first - 1, -1):
        instruction = code[n]
        target = index.get(target_of(instruction))
        nexts = []
        if target is not None and n < target <= last:
            nexts.append(target)
        ends = instruction.name in ("EXIT", "RET") and not instruction.predicate
        always = instruction.name.startswith("BRA") and not instruction.predicate \
            and not re.match(r"\s*U?P", instruction.operands)
        if not ends and not always:
            nexts.append(n + 1)
        ways = [way[m] + (m,) for m in nexts if way.get(m)]
        if not ways:
            way[n] = None
            continue
        best = max(ways, key=lambda one: one[:2])
        counts = instruction.name.split(".")[0] in ("HMMA", "LDGSTS")
        way[n] = (best[0] + counts, best[1] - 1, best[3])
    names, n = collections.Counter(), first
    while n is not None:
        names[code[n].name.split(".")[0]] += 1
        n = way[n][2]
    return names


def figures_of(code):
    """products, instructions per 128 of them, instructions of the loop, spills."""
    spills = sum(i.name.split(".")[0] in ("LDL", "STL") for i in code)
    loop = main_loop(code)
    if not loop:
        return 0, 0, 0, spills
    names = shortest_path(code, *loop)
    products = names["HMMA"]
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


def main():
    found = {}
    for (architecture, function), code in functions_of(sys.argv[1]).items():
        if name := name_of(function):
            found[architecture, name] = figures_of(code)
    print("| architecture | instance | HMMA | instructions per 128 HMMA | loop | spills |")
    print("|---|---|---|---|---|---|")
    for (architecture, name), figures in sorted(found.items()):
        print(f"| {architecture} | {name} | " + " | ".join(map(str, figures)) + " |")
    wrong = list(exceeded(found, sys.argv[2])) if len(sys.argv) > 2 else []
    for line in wrong:
        print("FAILED:", line)
    sys.exit(1 if wrong or not found else 0)


if __name__ == "__main__":
    main()
