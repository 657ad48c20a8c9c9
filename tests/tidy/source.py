# SPDX-License-Identifier: Apache-2.0
"""C text as the rules need it: without comments and literals, and cut into functions.

The tree is formatted (a rule of its own), so a function body is what stands between a line "{"
and a line "}" at the left margin.  That is all the parsing that length and parameter counts need.
"""

import re
from typing import NamedTuple

COMMENT = r"/\*.*?\*/|//[^\n]*"
LITERAL = r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'"
SIGNATURE = re.compile(r"(\w+)\s*\(([^{};]*)\)[^(){};]*$", re.S)


class Function(NamedTuple):
    name: str
    line: int  # of the opening brace
    lines: int  # from brace to brace, both counted
    parameters: int


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments(text):
    """The same text, same lines and columns, with comments turned into spaces."""

    def keep_literals(match):
        return match.group(0) if match.group(0)[0] in "\"'" else _blank(match)

    return re.sub(f"{COMMENT}|{LITERAL}", keep_literals, text, flags=re.S)


def code_only(text):
    """without_comments, and with string and character literals turned into spaces too."""
    return re.sub(f"{COMMENT}|{LITERAL}", _blank, text, flags=re.S)


def top_comment(text):
    """The first comment of a file, which says what the file is."""
    found = re.match(r"\s*(/\*.*?\*/)", text, re.S)
    return found.group(1) if found else ""


def functions(text):
    """Every function of a formatted C file."""
    lines = code_only(text).split("\n")
    found, start = [], None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and start is None:
            start = number
        elif line.rstrip() == "}" and start is not None:
            head = _head(lines, start - 2)
            signature = SIGNATURE.search(head)
            if signature:
                found.append(
                    Function(
                        signature.group(1),
                        start,
                        number - start + 1,
                        count_parameters(signature.group(2)),
                    )
                )
            start = None
    return found


def _head(lines, index):
    """The lines above a brace that belong to its signature."""
    head = []
    while index >= 0 and lines[index].strip() and not re.match(r"[#}]|.*[;{}]\s*$", lines[index]):
        head.append(lines[index])
        index -= 1
    return "\n".join(reversed(head))


def count_parameters(text):
    """Commas at the outer level, and one: a function pointer's own parameters do not count."""
    if text.strip() in ("", "void"):
        return 0
    depth, count = 0, 1
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        count += letter == "," and depth == 0
    return count
