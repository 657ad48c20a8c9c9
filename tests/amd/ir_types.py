# SPDX-License-Identifier: Apache-2.0
"""ir_types - sizes of LLVM's types in memory, and pieces of its text."""

from __future__ import annotations

import re

SCALARS = {"half": 2, "bfloat": 2, "float": 4, "double": 8}
NAME = r'(?:[-\w.$]+|"[^"]*")'
OPEN, CLOSE = "([{<", ")]}>"


class Unsupported(Exception):
    """A text that cannot be run on the CPU, and why."""


def split_top(text):
    """Splits at the commas that are in no bracket."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        if char in OPEN:
            depth += 1
        elif char in CLOSE:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return parts + [last] if last or parts else []


def take_type(text):
    """The type that the text begins with, and what follows it."""
    text = text.lstrip()
    if text[:1] and text[0] in OPEN:
        depth = 0
        for at, char in enumerate(text):
            depth += (char in OPEN) - (char in CLOSE)
            if depth == 0:
                return text[: at + 1], text[at + 1 :]
    found = re.match(rf"ptr addrspace\(\d+\)|%{NAME}|\w+", text)
    if not found:
        raise Unsupported(f"a type was expected: {text[:40]!r}")
    return found.group(0), text[found.end() :]


class Types:
    """Sizes and alignments, with the named structs of one module."""

    def __init__(self, structs):
        self.structs = structs  # "%struct.a" -> "{ i32, ptr }"

    def layout(self, type_):
        """(bytes, alignment) as an element of an array."""
        type_ = type_.strip()
        if type_ in SCALARS:
            return SCALARS[type_], SCALARS[type_]
        if type_.startswith("ptr"):
            narrow = re.fullmatch(r"ptr addrspace\([35]\)", type_)
            return (4, 4) if narrow else (8, 8)
        found = re.fullmatch(r"i(\d+)", type_)
        if found:
            size = 1 << max(0, (int(found.group(1)) + 7) // 8 - 1).bit_length()
            return size, min(size, 16)
        if type_ in self.structs:
            return self.layout(self.structs[type_])
        found = re.fullmatch(r"\[(\d+) x (.*)\]", type_)
        if found:
            size, align = self.layout(found.group(2))
            return int(found.group(1)) * size, align
        if type_.startswith("<{"):
            return sum(self.layout(part)[0] for part in split_top(type_[2:-2])), 1
        found = re.fullmatch(r"<(\d+) x (.*)>", type_)
        if found:
            size = int(found.group(1)) * self.layout(found.group(2))[0]
            size = 1 << (size - 1).bit_length()
            return size, size
        if type_.startswith("{"):
            return self.struct(split_top(type_[1:-1]))
        raise Unsupported(f"a type of unknown size: {type_}")

    def struct(self, parts):
        end, most = 0, 1
        for part in parts:
            size, align = self.layout(part)
            end = round_up(end, align) + size
            most = max(most, align)
        return round_up(end, most), most


def round_up(value, unit):
    return (value + unit - 1) // unit * unit
