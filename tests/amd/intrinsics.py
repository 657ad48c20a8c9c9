# SPDX-License-Identifier: Apache-2.0
"""intrinsics - what each intrinsic of the AMD compiler becomes on the CPU, as LLVM IR.

A row of TABLE: the intrinsic's name (the name of its `@amd.` function too), the types of result
and arguments, and the body of the function, whose arguments are %site, %a, %b, %c, ... `HOOK n`
stands for the n-th function of struct amd_hooks (object.h). What is not here is an error.
"""

from __future__ import annotations

import re

HOOKS = ["where", "barrier", "wave_barrier", "ballot", "shuffle", "first", "matrix"]
HOOKS_VARIABLE = "@amd.hooks"


def call_hook(name, result, arguments):
    """Lines that call a hook; its result is %r."""
    begin = "" if result == "void" else "%r = "
    return (
        f"%.t = load ptr, ptr {HOOKS_VARIABLE}\n"
        f"%.p = getelementptr ptr, ptr %.t, i64 {HOOKS.index(name)}\n"
        f"%.f = load ptr, ptr %.p\n"
        f"{begin}call {result} %.f({arguments})"
    )


def where(what):
    return "i32", [], call_hook("where", "i32", f"i32 {what}") + "\nret i32 %r"


def meet(name):
    return "void", [], call_hook(name, "void", "i32 %site") + "\nret void"


def ballot(bits):
    end = "ret i64 %r" if bits == 64 else "%n = trunc i64 %r to i32\nret i32 %n"
    body = "%w = zext i1 %a to i32\n" + call_hook("ballot", "i64", "i32 %site, i32 %w")
    return f"i{bits}", ["i1"], f"{body}\n{end}"


def shuffle(lane):
    """A value of another lane: `lane` are lines that compute its number, %lane, from %a."""
    call = call_hook("shuffle", "i32", "i32 %site, i32 %lane, i32 %b")
    return f"{lane}\n{call}\nret i32 %r"


def matrix(which, operand, sums, flags):
    """The registers go through memory, because fibers.c knows no vectors."""
    body = (
        f"%x = alloca {operand}, align 64\n%y = alloca {operand}, align 64\n"
        f"%z = alloca {sums}, align 64\n"
        f"store {operand} %a, ptr %x\nstore {operand} %b, ptr %y\nstore {sums} %c, ptr %z\n"
        + call_hook("matrix", "void", f"i32 %site, i32 {which}, ptr %x, ptr %y, ptr %z")
        + f"\n%s = load {sums}, ptr %z\nret {sums} %s"
    )
    return sums, [operand, operand, sums] + ["i32"] * flags, body


def simple(result, arguments, body):
    return result, arguments, body


def unary(type_, line):
    return simple(type_, [type_], f"{line}\nret {type_} %r")


def nothing(*arguments):
    return simple("void", list(arguments), "ret void")


def mbcnt(shift):
    """Bits of %a below this lane, plus %b; the wave is put in by emit()."""
    lines = [
        call_hook("where", "i32", "i32 0"),
        "%l = urem i32 %r, WAVE",
        "%w = zext i32 %l to i64",
        "%s = shl i64 1, %w",
        "%m = sub i64 %s, 1",
        f"%h = lshr i64 %m, {shift}",
        "%n = trunc i64 %h to i32",
        "%k = and i32 %n, %a",
        "%c1 = call i32 @llvm.ctpop.i32(i32 %k)",
        "%q = add i32 %c1, %b",
        "ret i32 %q",
    ]
    return simple("i32", ["i32", "i32"], "\n".join(lines))


def of_float(line):
    return unary("float", line)


V2F32, V4F32, V8F32, V16F32 = (f"<{n} x float>" for n in (2, 4, 8, 16))
V2F16 = "<2 x half>"

TABLE = {
    "workitem.id.x": where(0),
    "workgroup.id.x": where(1),
    "workgroup.id.y": where(2),
    "workgroup.id.z": where(3),
    "s.barrier": meet("barrier"),
    "wave.barrier": meet("wave_barrier"),
    "ballot.i64": ballot(64),
    "ballot.i32": ballot(32),
    # ds_bpermute: the lane's number times 4.
    "ds.bpermute": simple("i32", ["i32", "i32"], shuffle("%lane = lshr i32 %a, 2")),
    "readlane.i32": simple(
        "i32",
        ["i32", "i32"],
        call_hook("shuffle", "i32", "i32 %site, i32 %b, i32 %a") + "\nret i32 %r",
    ),
    "readfirstlane.i32": simple(
        "i32", ["i32"], call_hook("first", "i32", "i32 %site, i32 %a") + "\nret i32 %r"
    ),
    "readfirstlane": simple(
        "i32", ["i32"], call_hook("first", "i32", "i32 %site, i32 %a") + "\nret i32 %r"
    ),
    "mbcnt.lo": mbcnt(0),
    "mbcnt.hi": mbcnt(32),
    # One thread of the machine runs all fibers, so nothing has to wait for memory.
    "s.waitcnt": nothing("i32"),
    "sched.barrier": nothing("i32"),
    "sched.group.barrier": nothing("i32", "i32", "i32"),
    "iglp.opt": nothing("i32"),
    "s.setprio": nothing("i16"),
    "s.sleep": nothing("i32"),
    # The instructions of 1 ulp are computed exactly and rounded once.
    "rcp.f32": of_float("%r = fdiv float 1.0, %a"),
    "rsq.f32": of_float(
        "%q = call float @llvm.sqrt.f32(float %a)\n%r = fdiv float 1.0, %q"
    ),
    "sqrt.f32": of_float("%r = call float @llvm.sqrt.f32(float %a)"),
    "exp2.f32": of_float("%r = call float @llvm.exp2.f32(float %a)"),
    "log.f32": of_float("%r = call float @llvm.log2.f32(float %a)"),
    "fract.f32": of_float("%q = call float @llvm.floor.f32(float %a)\n%r = fsub float %a, %q"),
    "fmed3.f32": simple(
        "float",
        ["float", "float", "float"],
        "%l = call float @llvm.minnum.f32(float %a, float %b)\n"
        "%h = call float @llvm.maxnum.f32(float %a, float %b)\n"
        "%m = call float @llvm.minnum.f32(float %h, float %c)\n"
        "%r = call float @llvm.maxnum.f32(float %l, float %m)\nret float %r",
    ),
    "mfma.f32.16x16x16f16": matrix(0, "<4 x half>", V4F32, 3),
    "mfma.f32.16x16x16bf16.1k": matrix(1, "<4 x i16>", V4F32, 3),
    "mfma.f32.16x16x4f32": matrix(2, "float", V4F32, 3),
    "mfma.f32.16x16x8.xf32": matrix(3, V2F32, V4F32, 3),
    "mfma.f32.32x32x8f16": matrix(4, "<4 x half>", V16F32, 3),
    "mfma.f32.32x32x8bf16.1k": matrix(5, "<4 x i16>", V16F32, 3),
    "wmma.f32.16x16x16.f16.v8f32.v16f16": matrix(6, "<16 x half>", V8F32, 0),
    "wmma.f32.16x16x16.bf16.v8f32.v16i16": matrix(7, "<16 x i16>", V8F32, 0),
    "wmma.f32.16x16x16.f16.v8f32.v8f16": matrix(8, "<8 x half>", V8F32, 0),
    "wmma.f32.16x16x16.bf16.v8f32.v8i16": matrix(9, "<8 x i16>", V8F32, 0),
}

# What LLVM itself makes code of for both machines. Of the transcendental functions the AMD
# compiler has only those of f32 and f16: the others are undefined when it links.
GENERIC = re.compile(
    r"llvm\.("
    r"[su](min|max)|abs|ctpop|ct[lt]z|fsh[lr]|bswap|bitreverse|"
    r"[us](add|sub)\.sat|[us](add|sub|mul)\.with\.overflow|fpto[us]i\.sat|is\.fpclass|"
    r"fabs|sqrt|fma|fmuladd|floor|ceil|trunc|rint|nearbyint|round|roundeven|ldexp|"
    r"minnum|maxnum|minimum|maximum|copysign|canonicalize|"
    r"vector\.reduce\.\w+|lifetime\.\w+|mem(cpy|set|move)(\.inline)?|assume|trap|"
    r"experimental\.noalias\.scope\.decl"
    r")(\.|$)|llvm\.(exp|exp2|log|log2|log10|sin|cos)\.(v\d+)?f(16|32)$"
)


def is_generic(name):
    return GENERIC.match(name) is not None


def needed_by(names):
    """The generic intrinsics that bodies of these rows call, as declarations by name."""
    found = {}
    for name in names:
        for result, callee, arguments in re.findall(
            r"call (\w+) @(llvm\.[\w.]+)\(([^)]*)\)", TABLE[name][2]
        ):
            types = ", ".join(part.split()[0] for part in arguments.split(","))
            found[callee] = f"declare {result} @{callee}({types})"
    return found


def emit(name, wave):
    """The function `@amd.NAME`."""
    result, arguments, body = TABLE[name]
    letters = [f"{type_} %{letter}" for type_, letter in zip(arguments, "abcdefgh")]
    lines = "\n".join(f"  {line}" for line in body.replace("WAVE", str(wave)).split("\n"))
    head = ", ".join(["i32 %site", *letters])
    return f"define internal {result} @amd.{name}({head}) {{\n{lines}\n}}\n"
