#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at what AMD's compiler made of the kernels: which instructions multiply, and that no
kernel keeps registers or arrays in memory.

usage: instructions.py ARCH DIRECTORY [--some]  (of `voxeld compile --arch ARCH --all --binaries`;
                                                --some: with --model, tiles of any type)

Needs llvm-objdump of LLVM 19 or newer.  Exit code 0 right, 1 wrong, 77 no disassembler."""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

# What a tile multiplies with, by chip and type (kernels/matrix.cuh); None = chips without such
# instructions, whose tiles use fused multiply-adds.
MFMA_90A = {"fp16": "v_mfma_f32_16x16x16f16", "bf16": "v_mfma_f32_16x16x16bf16_1k",
            "fp32": "v_mfma_f32_16x16x4f32", "tf32": "v_mfma_f32_16x16x4f32"}
MFMA_942 = {"fp16": "v_mfma_f32_16x16x16_f16", "bf16": "v_mfma_f32_16x16x16_bf16",
            "fp32": "v_mfma_f32_16x16x4_f32", "tf32": "v_mfma_f32_16x16x8_xf32"}
WMMA = {"fp16": "v_wmma_f32_16x16x16_f16", "bf16": "v_wmma_f32_16x16x16_bf16",
        "fp32": None, "tf32": None}
EXPECTED = {"gfx90a": MFMA_90A, "gfx942": MFMA_942, "gfx1100": WMMA, "gfx1200": WMMA}
TILED = ("conv_masked", "conv_pairs")

MATRIX = re.compile(r"\bv_s?w?mf?mac?_\w+|\bv_mfma_\w+")
FMA = re.compile(r"\bv_(?:pk_|dual_)?fma[ck]?_f32")
# Memory of one thread: of CDNA3 and RDNA by an instruction of its own, of CDNA2 through a buffer.
SCRATCH = re.compile(r"\bscratch_(?:load|store)\w*|\bbuffer_(?:load|store)\w* .*\bs\[0:3\]")


def disassembler():
    names = ["llvm-objdump-%d" % version for version in (19, 20, 21)]
    return next((found for found in map(shutil.which, names) if found), None)


def instructions(program, path):
    """(kernel, type, {"matrix": .., "fma": .., "scratch": ..}) of a binary's own kernel."""
    name, _, words = path.stem.partition("-")
    text = subprocess.run([program, "-d", "--no-show-raw-insn", str(path)],
                          capture_output=True, text=True, check=True).stdout
    body = re.search(r"^[0-9a-f]+ <%s>:\n(.*?)(?=^[0-9a-f]+ <|\Z)" % name, text, re.M | re.S)
    code = body.group(1) if body else ""
    return name, words.split("-")[0], {
        "length": code.count("\n"), "matrix": set(MATRIX.findall(code)),
        "fma": bool(FMA.search(code)), "scratch": len(SCRATCH.findall(code))}


def wrong_multiply(expected, found):
    if expected:
        return found["matrix"] != {expected}
    return bool(found["matrix"]) or not found["fma"]


def faults(expected, binaries, some):
    """What is wrong, a sentence each."""
    for stem, (kernel, kind, found) in sorted(binaries.items()):
        if found["length"] < 4:
            yield f"{stem}: no code of {kernel} found"
        if found["scratch"]:
            yield f"{stem}: {found['scratch']} accesses of scratch memory, expected none"
        if kernel in TILED and wrong_multiply(expected[kind], found):
            yield (f"{stem}: expected {expected[kind] or 'fused multiply-adds'}, "
                   f"got {', '.join(sorted(found['matrix'])) or 'no matrix instruction'}")
    if some:
        if not any(b[0] in TILED for b in binaries.values()):
            yield "no tile"
        return
    for kernel in TILED:
        for kind in ("fp16", "bf16", "fp32"):
            if not any(b[:2] == (kernel, kind) for b in binaries.values()):
                yield f"no tile of {kernel} for {kind}"


def main():
    some = sys.argv[3:] == ["--some"]
    if len(sys.argv) != 3 + some or sys.argv[1] not in EXPECTED:
        print(f"instructions: expected one of {', '.join(EXPECTED)} and a directory, then --some "
              "or nothing", file=sys.stderr)
        return 2
    arch, paths = sys.argv[1], sorted(pathlib.Path(sys.argv[2]).glob("*.bin"))
    program = disassembler()
    if not program:
        print("SKIPPED instructions: no llvm-objdump 19 on this machine (llvm-19)")
        return 77
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda path: (path.stem, instructions(program, path)), paths)
        binaries = dict(found)
    wrong = list(faults(EXPECTED[arch], binaries, some))
    # A check that cannot fail shows nothing: another chip's instructions must be noticed.
    other = MFMA_90A if arch == "gfx942" else MFMA_942
    tiles = sum(kernel in TILED for kernel, _, _ in binaries.values())
    if len(list(faults(other, binaries, some))) < tiles:
        wrong.append("another chip's instructions would have passed")
    for sentence in wrong:
        print(f"instructions: {arch}: {sentence}", file=sys.stderr)
    print(f"{len(binaries)} binaries of {arch} disassembled, {tiles} of them tiles, "
          f"{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
