"""Rules about comments and words.

SPDX-License-Identifier: Apache-2.0
"""

import re

from rules import Rule, is_c, line_of

# What clang-format does to a comment that is too long for its line.
LONELY_END = re.compile(r"^[ \t]+\*/$", re.M)
SPLIT_DECLARATOR = re.compile(
    r"^[ ]{4}(?:const |unsigned |struct \w+|enum \w+|\w+)(?: \w+)* ?\**\n"
    r"[ ]{8,}\*?\w+(?:\[[^\]]*\])?(?: : \d+)?[;,] /\*",
    re.M,
)


def check_comment_layout(_path, text):
    for found in LONELY_END.finditer(text):
        before = text[: found.start()].rstrip("\n").rsplit("\n", 1)[-1]
        if not re.match(r"^( \*|/\*)", before):  # a top comment ends so
            yield line_of(text, found.start()), "*/ alone: shorten the comment, or put it above"
    for found in SPLIT_DECLARATOR.finditer(text):
        yield line_of(text, found.start()), "a declarator split by its comment: put it above"


def check_name(path, text):
    found = re.match(r"/\* ([\w./+-]+) - ", text)
    stem = path.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    if found and found[1].rsplit("/", 1)[-1] != stem:
        yield 1, f"the top comment is of '{found[1]}': expected '{stem}'"


# One word for one thing: CONTRIBUTING.md, "Words".
BANNED_WORDS = re.compile(r"\b(bells?|geometry_ref|vx_content|whoever|household)\b", re.I)


def check_words(_path, text):
    for found in BANNED_WORDS.finditer(text):
        yield (
            line_of(text, found.start()),
            f"'{found.group()}': CONTRIBUTING.md, Words, has another word",
        )


RULES = [
    Rule(
        "comment-layout",
        "a comment that is too long breaks the code beside it",
        is_c,
        check_comment_layout,
        bad=[
            ("server/a.h", "struct a {\n    i32 b; /* so long that it\n              */\n};\n"),
            ("server/a.h", "struct a {\n    struct vx_link\n        link; /* in a box */\n};\n"),
        ],
        good=[
            ("server/a.h", "/* a - b.\n *\n * Owner c.\n */\n"),
            ("server/a.h", "struct a {\n    struct vx_link link; /* in a mailbox */\n};\n"),
        ],
    ),
    Rule(
        "header-name",
        "a header that has moved says so",
        lambda p: p.endswith(".h"),
        check_name,
        bad=[("server/a.h", "/* b - what a is. */\n")],
        good=[("server/a.h", "/* a - what it is. */\n"), ("server/a.h", "/* server/a - it. */\n")],
    ),
    Rule(
        "words",
        "one word for one thing",
        lambda p: (is_c(p) or p.endswith(".md")) and p != "CONTRIBUTING.md",
        check_words,
        bad=[("server/a.c", "/* Rings the bell. */\n"), ("a.md", "as geometry_ref\n")],
        good=[("server/a.c", "/* Wakes the loop. */\n")],
    ),
]
