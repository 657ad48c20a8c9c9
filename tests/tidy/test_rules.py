# SPDX-License-Identifier: Apache-2.0
"""Rules about tests: none may pass or fail by how fast the machine is."""

import re

from rules import Rule, line_of

SLEEP = re.compile(
    r"(?<![\w.])(usleep|nanosleep|clock_nanosleep|uv_sleep|rpc_sleep_ms|(?:time|asyncio)\.sleep"
    r"|(?<!\bvoid )(?<!\bdef )sleep)\s*\("
)
DEFINES = re.compile(r"^(static )?\w+ \**\w*sleep\w*\(")
DEADLINE = re.compile(r"\b(?:\w+_)?timeout=(\d+)(?=\s*[,)])")
# A deadline below this is too short: a good request on a busy machine may take as long.
PATIENCE_SECONDS = 100


def is_test_code(path):
    return path.startswith("tests/") and path.endswith((".c", ".h", ".py"))


def says(word, lines, number):
    """Whether a comment with the word stands in the line, in the one before or in the next one,
    where the formatter may have put it."""
    near = lines[max(0, number - 2) : number + 1]
    return any(re.search(rf"(/\*|#|^ \*).*\b{word}: \w", line) for line in near)


def check_sleeps(_path, text):
    lines = text.split("\n")
    for found in SLEEP.finditer(text):
        number = line_of(text, found.start())
        line = lines[number - 1]
        before = line[: found.start() - text.rfind("\n", 0, found.start()) - 1]
        if DEFINES.match(line) or re.search(r"#|/\*|^ \*|\"|'", before):
            continue
        if not says("sleep", lines, number):
            yield number, (
                f"{found.group(1)}(): wait for the event (VX_WAIT_UNTIL, daemon.wait_for), "
                "or say why no event will do: /* sleep: ... */"
            )


def check_deadlines(_path, text):
    lines = text.split("\n")
    for found in DEADLINE.finditer(text):
        number = line_of(text, found.start())
        if int(found.group(1)) < PATIENCE_SECONDS and not says("deadline", lines, number):
            yield number, (
                f"{found.group(0)}: a good request has PATIENCE, one that is to be late says "
                "why: # deadline: ..."
            )


RULES = [
    Rule(
        "sleeps",
        "tests wait for events; a sleep says why there is none to wait for",
        lambda p: is_test_code(p) and not p.startswith("tests/tidy/"),
        check_sleeps,
        bad=[
            ("tests/unit/a.c", "    usleep(1000);\n"),
            ("tests/unit/a.c", "    for (i32 i = 0; i < 5000 && !done(); i++) rpc_sleep_ms(1);\n"),
            ("tests/unit/a.c", "    nanosleep(&(struct timespec){0, 1}, NULL); /* a moment */\n"),
            ("tests/e2e/a.py", "    time.sleep(2)\n"),
            ("tests/e2e/a.py", "    await asyncio.sleep(1)  # until it is done\n"),
        ],
        good=[
            ("tests/unit/a.c", "    usleep(50); /* sleep: in which nothing may come */\n"),
            ("tests/unit/a.c", "    /* sleep: at random */\n    rpc_sleep_ms(3);\n"),
            ("tests/unit/a.c", "void rpc_sleep_ms(i64 ms)\n{\n"),
            ("tests/unit/a.c", '    fail("usleep(3)");\n'),
            ("tests/e2e/a.py", "    def sleep(self, seconds):\n"),
            ("tests/e2e/a.py", "    time.sleep(0.01)  # sleep: between two looks\n"),
        ],
    ),
    Rule(
        "deadlines",
        "a good request is given as long as it takes",
        lambda p: p.startswith(("tests/e2e/", "tests/bench/")) and p.endswith(".py"),
        check_deadlines,
        bad=[
            ("tests/e2e/a.py", 'client.infer("m", c, f, timeout=20)\n'),
            ("tests/e2e/a.py", 'stock.infer("m", inputs, client_timeout=60, priority=1)\n'),
        ],
        good=[
            ("tests/e2e/a.py", 'client.infer("m", c, f, timeout=PATIENCE)\n'),
            ("tests/e2e/a.py", 'client.infer("m", c, f, timeout=5)  # deadline: to be passed\n'),
            ("tests/e2e/a.py", 'client.infer("m", c, f, timeout=0.3)\n'),
            ("tests/e2e/a.py", 'stock.infer("m", inputs, timeout=30_000_000)\n'),
        ],
    ),
]
