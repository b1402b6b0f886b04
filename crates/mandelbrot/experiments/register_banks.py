"""What the rule of register_banks.cu says about a kernel, and the same kernel with other register names.

    ptxas -arch=sm_90 gpu_10_scaled.ptx -o a.cubin
    python3 register_banks.py a.cubin                     reads of each bank and cycles, for each loop of the code
    python3 register_banks.py a.cubin --rename b.cubin    exchanges registers until the rule expects the worst

The renamed kernel has the same instructions in the same order with the same waits; only the parity of its registers
differs. Needs nvdisasm on the path (or NVDISASM). Written for sm_90: other machine code has other fields.
"""
import os
import random
import re
import struct
import subprocess
import sys

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\d\s+)?(\S+)\s*(.*?)\s*;")
# Registers of these come in pairs or have a fixed meaning: not renamed.
FIXED = re.compile(r"\.(64|128)|WIDE|STG|LDG|S2R|LDC|IMAD\.HI|R2UR|I2F|F2I|MUFU|BSSY|BSYNC|ATOM|SHFL|VOTE|POPC")
NO_RESULT = ("ST", "BRA", "EXIT", "RED", "BSYNC", "WARPSYNC")


def disassemble(path):
    """Instructions as (operation, operands), and loops as (first, last) of them."""
    tool = os.environ.get("NVDISASM", "nvdisasm")
    text = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    instructions, labels, loops = [], {}, []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label.group(1)] = len(instructions)
        elif found := INSTRUCTION.search(line):
            operation, operands = found.groups()
            target = re.search(r"\.L_x_\d+", operands) if operation == "BRA" else None
            if target and len(instructions) - labels.get(target.group(0), 1 << 30) > 30:
                loops.append((labels[target.group(0)], len(instructions)))
            instructions.append((operation, operands))
    return instructions, loops


def text_offset(data):
    """Where the machine code starts in a cubin of one kernel."""
    table, = struct.unpack_from("<Q", data, 0x28)
    count, names = struct.unpack_from("<HH", data, 0x3C)
    section = lambda i: struct.unpack_from("<IIQQQQ", data, table + 64 * i)
    for i in range(count):
        name = data[section(names)[4] + section(i)[0]:].split(b"\0")[0]
        if name.startswith(b".text."):
            return section(i)[4]
    raise SystemExit("no machine code")


def reads(instructions):
    """Reads of the even and of the odd bank, for each instruction."""
    out, kept = [], {}
    for operation, operands in instructions:
        parts = [part.strip() for part in re.split(r",(?![^\[]*\])", operands)]
        sources = parts if operation.startswith(NO_RESULT) else parts[2 if "SETP" in operation else 1:]
        slots = {i: re.match(r"[-|~!]*R(\d+)(\.reuse)?", part) for i, part in enumerate(sources)}
        slots = {i: (int(m.group(1)), m.group(2)) for i, m in slots.items() if m}
        registers = {r for i, (r, _) in slots.items() if kept.get(i) != r}
        out.append((sum(r % 2 == 0 for r in registers), sum(r % 2 for r in registers)))
        kept = {i: r for i, (r, reuse) in slots.items() if reuse}
    return out


def cycles(bank_reads, waits, warps):
    """Cycles for one turn of a loop, by the rule; `warps` take turns, and each waits as the compiler told it."""
    rnd = random.Random(1)
    at, ready = [rnd.randrange(len(waits)) for _ in range(warps)], [0] * warps
    order, free, t, issued = list(range(warps)), [0, 0], 0, 0
    while issued < 150 * len(waits):
        warp = next((w for w in order if ready[w] <= t), None)
        if warp is None:
            t += 1
            continue
        for bank, n in enumerate(bank_reads[at[warp]]):
            if n:
                t = max(t, free[bank] + n - max(n, 2))
        for bank, n in enumerate(bank_reads[at[warp]]):
            if n:
                free[bank] = max(free[bank], t) + n
        ready[warp] = t + waits[at[warp]]
        at[warp] = (at[warp] + 1) % len(waits)
        order.remove(warp)
        order.append(warp)
        t, issued = t + 1, issued + 1
    return t / 150


def renamed(instructions, names):
    new = lambda match: "R%d" % names.get(int(match.group(1)), int(match.group(1)))
    return [(operation, re.sub(r"\bR(\d+)", new, operands)) for operation, operands in instructions]


def rename(path, out, instructions, loop, waits):
    registers = lambda operands: {int(r) for r in re.findall(r"\bR(\d+)", operands)}
    fixed = {0, 1}
    for operation, operands in instructions:
        if FIXED.search(operation) or "[R" in operands:
            fixed |= {x for r in registers(operands) for x in (r, r + 1, r ^ 1)}
    free = sorted(set().union(*(registers(operands) for _, operands in instructions)) - fixed)
    score = lambda names: cycles(reads(renamed(loop, names)), waits, 8)
    rnd, names = random.Random(0), {r: r for r in free}
    best = score(names)
    for _ in range(300):
        trial = dict(names)
        a, b = rnd.sample(free, 2)
        trial[a], trial[b] = trial[b], trial[a]
        if (got := score(trial)) >= best:
            names, best = trial, got

    data = bytearray(open(path, "rb").read())
    start = text_offset(data)
    for i, (_, operands) in enumerate(instructions):
        word = int.from_bytes(data[start + 16 * i:start + 16 * i + 16], "little")
        immediate = any(re.match(r"-?(\d|c\[|UR)", part.strip()) for part in operands.split(",")[1:])
        for shift in (16, 24, 32, 64):
            register = word >> shift & 255
            if register in names and register in registers(operands) and not (shift == 32 and immediate):
                word = word & ~(255 << shift) | names[register] << shift
        data[start + 16 * i:start + 16 * i + 16] = word.to_bytes(16, "little")
    with open(out, "wb") as file:
        file.write(data)
    if disassemble(out)[0] != renamed(instructions, names):
        raise SystemExit("the renamed code is not what was meant")
    return names


def report(instructions, loops, waits):
    for first, last in loops:
        bank_reads = reads(instructions[first:last + 1])
        print("loop of %d: even %d, odd %d, one warp at a time %.1f cycles, 8 warps in turn %.1f" % (
            last + 1 - first, sum(e for e, _ in bank_reads), sum(o for _, o in bank_reads),
            cycles(bank_reads, [1] * len(bank_reads), 1), cycles(bank_reads, waits[first:last + 1], 8)))


def main():
    path = sys.argv[1]
    instructions, loops = disassemble(path)
    data = open(path, "rb").read()
    start = text_offset(data)
    waits = [max(1, int.from_bytes(data[start + 16 * i:start + 16 * i + 16], "little") >> 105 & 15)
             for i in range(len(instructions))]
    report(instructions, loops, waits)
    if len(sys.argv) == 4 and sys.argv[2] == "--rename":
        first, last = loops[0]
        rename(path, sys.argv[3], instructions, instructions[first:last + 1], waits[first:last + 1])
        print("renamed:")
        report(*disassemble(sys.argv[3]), waits)


main()
