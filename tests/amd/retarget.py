# SPDX-License-Identifier: Apache-2.0
"""retarget - optimised LLVM IR for an AMD GPU becomes IR for x86-64 that fibers.c runs.

What changes: address spaces go (shared memory lies below 4 GB, so that its addresses survive in
32 bits), variables in shared memory become fixed addresses, calls of AMD's intrinsics become calls
of functions from intrinsics.py with the number of the place, and each kernel gets a function that
reads its arguments from the kernel argument segment. Everything else stays as AMD's compiler
left it. What is not known is an error, never ignored.
"""

from __future__ import annotations

import re

import intrinsics
from ir_types import NAME, Types, Unsupported, round_up, split_top, take_type

# As in object.h.
OBJECT_VERSION = 1
LDS_STATIC_END, LDS_DYNAMIC, LDS_BYTES = 0x50010000, 0x50020000, 0x10000

TARGET = (
    'target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128'
    '-n8:16:32:64-S128"\ntarget triple = "x86_64-pc-linux-gnu"\n'
)
GLOBAL = re.compile(rf"^(@{NAME}) = (.*)$")
SYMBOL = re.compile(rf"@{NAME}")
DEFINE = re.compile(rf"^define (.*?)(@{NAME})\((.*)\)([^()]*)\{{$")
# Address spaces: 0 generic, 1 global, 3 shared (LDS), 4 constant, 5 private.
SPACES = {"0", "1", "3", "4", "5"}


class Module:
    """The parts of a module's text."""

    def __init__(self, text):
        self.structs, self.globals, self.declares = {}, {}, []
        self.functions, self.rest, self.attributes = [], [], {}
        function = None
        for line in text.split("\n"):
            if function is not None:
                function.append(line)
                if line == "}":
                    self.functions.append(function)
                    function = None
            elif line.startswith("define "):
                function = [line]
            else:
                self.take(line)
        self.types = Types(self.structs)

    def take(self, line):
        found = re.match(rf"(%{NAME}) = type (.*)$", line)
        if found:
            self.structs[found.group(1)] = found.group(2)
            self.rest.append(line)
        elif line.startswith("declare "):
            self.declares.append(line)
        elif line.startswith("attributes "):
            number, words = re.match(r"attributes (#\d+) = (.*)$", line).groups()
            self.attributes[number] = words
        elif GLOBAL.match(line):
            name, words = GLOBAL.match(line).groups()
            self.globals[name] = words
        elif not line.startswith(("target ", "source_filename", ";")):
            self.rest.append(line)

    def attribute(self, name):
        """The values that an attribute of functions has in this module."""
        pattern = re.compile(rf'"{name}"="([^"]*)"')
        return {value for words in self.attributes.values() for value in pattern.findall(words)}


# --- shared memory ---


def symbols_used(module):
    """For each function, the symbols that it and the functions it calls name."""
    direct = {}
    for lines in module.functions:
        name = DEFINE.match(lines[0]).group(2)
        direct[name] = set(SYMBOL.findall("\n".join(lines[1:])))
    reached = {}
    for name in direct:
        seen, todo = set(), [name]
        while todo:
            for symbol in direct.get(todo.pop(), ()):
                if symbol not in seen:
                    seen.add(symbol)
                    todo.append(symbol)
        reached[name] = seen
    return reached


def shared_variables(module):
    """name -> (bytes, alignment, dynamic) of the variables in address space 3."""
    found = {}
    for name, words in module.globals.items():
        if "addrspace(3) " not in words.split(" global ")[0] + " ":
            continue
        shape = re.search(r"\bglobal (.*)$", words)
        type_, rest = take_type(shape.group(1))
        align = re.search(r", align (\d+)", rest)
        dynamic = words.startswith("external")
        if not dynamic and not re.match(r"\s*(undef|poison)\b", rest):
            raise Unsupported(f"{name}: shared memory with an initial value")
        found[name] = (module.types.layout(type_)[0], int(align.group(1)), dynamic)
    return found


def place_shared(variables, kernels, used):
    """Addresses of the variables, and for each kernel the bytes that it has below the end:
    variables of different kernels may share a place."""
    together = {name: set() for name in variables}
    for kernel in kernels:
        mine = [name for name in variables if name in used[kernel]]
        for name in mine:
            together[name].update(mine)
    placed = {}  # name -> (begin, end), counted down from the end
    order = sorted(variables, key=lambda name: (-variables[name][0], name))
    for name in order:
        size, align, dynamic = variables[name]
        if dynamic:
            continue
        taken = sorted(placed[other] for other in together[name] if other in placed)
        end = 0
        for begin_other, end_other in taken:
            if round_up(end + size, align) <= begin_other:
                break
            end = max(end, end_other)
        placed[name] = (end, round_up(end + size, align))
    addresses = {name: LDS_STATIC_END - end for name, (_, end) in placed.items()}
    addresses.update((name, LDS_DYNAMIC) for name in variables if variables[name][2])
    sizes = {
        kernel: max((placed[name][1] for name in placed if name in used[kernel]), default=0)
        for kernel in kernels
    }
    return addresses, sizes


# --- the text of functions ---


def without_spaces(line):
    """The line without address spaces and AMD's attributes."""
    if re.search(r"\b(load|store) (volatile )?ptr addrspace\(5\)", line):
        raise Unsupported(f"an address of private memory in memory: {line.strip()}")
    for space in re.findall(r"addrspace\((\d+)\)", line):
        if space not in SPACES:
            raise Unsupported(f"address space {space}: {line.strip()}")
    line = re.sub(r", addrspace\(5\)", "", line)
    line = re.sub(r" addrspace\(\d+\)", "", line)
    line = line.replace("addrspacecast ", "bitcast ")
    line = re.sub(r' syncscope\("[^"]*"\)', "", line)
    line = re.sub(r"@(llvm\.[\w.]+)", lambda found: "@" + plain_name(found.group(1)), line)
    return re.sub(r" #\d+(?=$|[ ,])", "", line)


def plain_name(name):
    """The name of a generic intrinsic, whose pointers lie in no address space now."""
    return re.sub(r"\.p\d+(?=\.|$)", ".p0", name)


class Sites:
    """Gives every call of an intrinsic its number."""

    def __init__(self):
        self.count = 0

    def replace(self, line):
        def numbered(found):
            self.count += 1
            comma = "" if found.group(2) == ")" else ", "
            return f"@amd.{found.group(1)}(i32 {self.count}{comma}{found.group(2)}"

        return re.sub(r"@llvm\.amdgcn\.([\w.]+)\((.)", numbered, line)


def check_line(line):
    if re.search(r"\bcall\b.*\basm\b", line) and not re.search(r'asm sideeffect "", "~', line):
        raise Unsupported(f"inline assembly: {line.strip()}")
    if re.search(r"\b(invoke|indirectbr|callbr)\b", line):
        raise Unsupported(f"an instruction that is not known: {line.strip()}")


def function_text(lines, addresses, sites):
    out = []
    for line in lines:
        check_line(line)
        line = SYMBOL.sub(lambda found: address_of(found.group(0), addresses), line)
        out.append(without_spaces(sites.replace(line)))
    return "\n".join(out)


def address_of(symbol, addresses):
    if symbol not in addresses:
        return symbol
    return f"inttoptr (i64 {addresses[symbol]} to ptr addrspace(3))"


# --- kernels ---


def is_kernel(lines):
    return "amdgpu_kernel" in DEFINE.match(lines[0]).group(1)


def kernel_head(lines):
    """The kernel as an internal function."""
    _, name, parameters, _ = DEFINE.match(lines[0]).groups()
    return [f"define internal void {name}({parameters}) {{", *lines[1:]]


def kernel_runner(module, lines):
    """A function that reads the arguments from the segment, and the bytes of the segment."""
    name, parameters = DEFINE.match(lines[0]).group(2, 3)
    body, arguments, end = [], [], 0
    for number, parameter in enumerate(split_top(parameters)):
        type_, rest = take_type(parameter)
        by_reference = re.search(r"\bbyref\((.*?)\)(?= |$)", rest)
        if by_reference:
            size, align = module.types.layout(by_reference.group(1))
            align = int(re.search(r"\balign (\d+)", rest).group(1))
        else:
            size, align = module.types.layout(type_)
        end = round_up(end, align)
        body.append(f"  %p{number} = getelementptr i8, ptr %args, i64 {end}")
        plain = without_spaces(f" {type_}").strip()
        if by_reference:
            arguments.append(f"ptr %p{number}")
        else:
            body.append(f"  %v{number} = load {plain}, ptr %p{number}")
            arguments.append(f"{plain} %v{number}")
        end += size
    body += [f"  call void {name}({', '.join(arguments)})", "  ret void"]
    runner = f"define internal void @amd.run.{name[1:]}(ptr %args) {{\n" + "\n".join(body) + "\n}\n"
    return runner, end


def threads_of(module, lines):
    number = re.search(r" (#\d+)", DEFINE.match(lines[0]).group(4))
    words = module.attributes.get(number.group(1), "") if number else ""
    found = re.search(r'"amdgpu-flat-work-group-size"="(\d+),(\d+)"', words)
    return (int(found.group(1)), int(found.group(2))) if found else (1, 1024)


def text_constant(symbol, text, size=None):
    size = size or len(text) + 1
    zeros = "\\00" * (size - len(text))
    return f'{symbol} = internal constant [{size} x i8] c"{text}{zeros}"\n'


def object_text(arch, wave, rows):
    """The exported struct amd_object with its table of kernels."""
    kernel = "{ ptr, ptr, i64, i32, i32, i32, i32 }"
    texts = "".join(text_constant(f"@amd.name.{i}", row["name"]) for i, row in enumerate(rows))
    table = ",\n  ".join(
        f"{kernel} {{ ptr @amd.name.{i}, ptr @amd.run.{row['name']}, i64 {row['args']}, "
        f"i32 {row['lds']}, i32 {row['threads'][0]}, i32 {row['threads'][1]}, i32 0 }}"
        for i, row in enumerate(rows)
    )
    zeros = "\\00" * (16 - len(arch))
    return (
        f"{intrinsics.HOOKS_VARIABLE} = internal global ptr null\n{texts}"
        f"@amd.kernels = internal constant [{len(rows)} x {kernel}] [\n  {table}\n]\n"
        f"@amd_object = constant {{ [8 x i8], i32, i32, [16 x i8], ptr, ptr, i64 }} {{\n"
        f'  [8 x i8] c"vx-amd\\00\\00", i32 {OBJECT_VERSION}, i32 {wave}, '
        f'[16 x i8] c"{arch}{zeros}",\n'
        f"  ptr {intrinsics.HOOKS_VARIABLE}, ptr @amd.kernels, i64 {len(rows)}\n}}\n"
    )


# --- the module ---


def check_declares(module):
    """The AMD intrinsics that are used, and declarations of the generic ones by name."""
    used, generic = [], {}
    for line in module.declares:
        found = re.match(rf"declare (.*?)(@{NAME})\((.*)\)", line)
        name = found.group(2)[1:]
        if name.startswith("llvm.amdgcn."):
            short = name[len("llvm.amdgcn.") :]
            check_signature(short, found.group(1), found.group(3))
            used.append(short)
        elif intrinsics.is_generic(name):
            plain = without_spaces(line)
            generic[re.search(r"@(llvm[\w.]+)", plain).group(1)] = plain
        else:
            raise Unsupported(f"{name}: AMD's compiler has no such function, or it is not known")
    return used, generic


def check_signature(name, result, arguments):
    if name not in intrinsics.TABLE:
        raise Unsupported(f"llvm.amdgcn.{name}: an intrinsic that is not known")
    want_result, want_arguments, _ = intrinsics.TABLE[name]
    got_result = re.sub(r"\b(noundef|nonnull|range\([^)]*\))\s*", "", result).strip()
    got_arguments = [take_type(part)[0] for part in split_top(arguments)]
    if got_result != want_result or got_arguments != want_arguments:
        raise Unsupported(
            f"llvm.amdgcn.{name}: expected {want_result} {want_arguments}, "
            f"got {got_result} {got_arguments}"
        )


def other_globals(module, variables):
    """Constants and variables in device memory; what only the loader of HIP reads goes."""
    out = []
    for name, words in module.globals.items():
        if name in variables or name.startswith(("@llvm.", "@__hip_cuid")):
            continue
        if any(variable in SYMBOL.findall(words) for variable in variables):
            raise Unsupported(f"{name}: the address of shared memory in a constant")
        if words.startswith("external"):
            raise Unsupported(f"{name}: a variable that is not defined")
        words = re.sub(r"\b(protected|hidden|dso_local|externally_initialized) ", "", words)
        words = re.sub(r"^(?!internal|private)(\w+ )*?(?=(unnamed|local|addr|glob|const))",
                       "internal ", words, count=1)
        out.append(without_spaces(f"{name} = {words}"))
    return out


def wave_of(module):
    waves = {
        int(found)
        for features in module.attribute("target-features")
        for found in re.findall(r"\+wavefrontsize(\d+)", features)
    }
    if len(waves) != 1:
        raise Unsupported(f"one size of waves was expected, got {sorted(waves)}")
    return waves.pop()


def retarget(text, arch):
    """The IR for x86-64."""
    module = Module(text)
    wave = wave_of(module)
    kernels = [lines for lines in module.functions if is_kernel(lines)]
    names = [DEFINE.match(lines[0]).group(2) for lines in kernels]
    if not kernels:
        raise Unsupported("there is no kernel in it")
    variables = shared_variables(module)
    addresses, sizes = place_shared(variables, names, symbols_used(module))
    used, generic = check_declares(module)
    for name, line in intrinsics.needed_by(used).items():
        generic.setdefault(name, line)
    sites, bodies, runners, rows = Sites(), [], [], []
    for lines in module.functions:
        head = kernel_head(lines) if is_kernel(lines) else lines
        bodies.append(function_text(head, addresses, sites))
    for lines, name in zip(kernels, names):
        runner, size = kernel_runner(module, lines)
        runners.append(runner)
        rows.append({"name": name[1:], "args": size, "lds": sizes[name],
                     "threads": threads_of(module, lines)})
        if sizes[name] > LDS_BYTES:
            raise Unsupported(f"{name[1:]}: {sizes[name]} bytes of shared memory in a block")
    return "\n".join(
        [TARGET, *map(without_spaces, module.rest), *other_globals(module, variables),
         object_text(arch, wave, rows), *generic.values(),
         *(intrinsics.emit(name, wave) for name in used), *bodies, *runners, ""]
    )
