# SPDX-License-Identifier: Apache-2.0
"""Rules about one file: a function from its path and text to findings (line, sentence)."""

import re
from typing import Callable, NamedTuple

from source import code_only, functions, top_comment, without_comments

FOLDERS = ("clients", "deploy", "engine", "kernels", "proto", "server", "tests")
SCRIPT = re.compile(r"#!.*\b(bash|sh|python3)\b")


class Rule(NamedTuple):
    name: str
    why: str
    applies: Callable[[str], bool]
    check: Callable
    bad: list  # (path, text) that must be refused
    good: list = []  # (path, text) that must pass


def is_c(path):
    return path.endswith((".c", ".h", ".cu", ".cuh"))


def is_ours(path):
    """C code that serves: everything but tests."""
    return is_c(path) and not path.startswith("tests/")


def is_header(path):
    return path.endswith(".h") and path.startswith(("engine/", "proto/", "server/", "clients/"))


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def find_all(pattern, text, sentence):
    return [
        (line_of(text, found.start()), sentence.format(found.group(1)))
        for found in re.finditer(pattern, text, re.M)
    ]


# The include law: longest matching folder wins.

VENDORS = r"cuda|hip|nvrtc|nccl|rccl"
#         folder          may include ours                      never these of others
FRONT_MAY = ("server/", "proto/", "engine/base/", "engine/signature.h", "engine/device.h")
WORKER_MAY = (*FRONT_MAY, "engine/engine.h", "engine/batch.h")
LAW = {
    "kernels/": (("kernels/",), rf"grpc|uv\.h|protobuf-c|cblas|{VENDORS}"),
    "engine/base/": (("engine/base/",), rf"grpc|uv\.h|protobuf-c|cblas|{VENDORS}"),
    "engine/": (("engine/", "kernels/"), r"grpc|uv\.h|protobuf-c"),
    "proto/": (("proto/", "engine/base/"), rf"grpc|uv\.h|cblas|{VENDORS}"),
    # The front knows models and devices as plain data; only worker and tools use the engine.
    # Which room includes which is in server/CMakeLists.txt and engine/CMakeLists.txt: a compiler
    # sees no other.
    "server/": (FRONT_MAY, rf"grpc|cblas|{VENDORS}"),
    "server/rpc/": (FRONT_MAY, rf"cblas|{VENDORS}"),
    **{path: (WORKER_MAY, rf"grpc|uv\.h|cblas|{VENDORS}")
       for path in ("server/worker/", "server/devices/", "server/main.c", "server/tools.c")},
    "clients/": (("clients/", "proto/voxel.proto"), rf"uv\.h|cblas|{VENDORS}"),
    "tests/": (tuple(f"{folder}/" for folder in FOLDERS), r"\Z"),
}


def check_includes(path, text):
    folder = max((key for key in LAW if path.startswith(key)), key=len)
    may, never = LAW[folder]
    for found in re.finditer(
        r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', without_comments(text), re.M
    ):
        kind, name = found.groups()
        line = line_of(text, found.start())
        if kind == "<":
            if re.match(never, name):
                yield line, f"{folder} may not include <{name}>"
        elif ".." in name or "/" not in name:
            if not name.endswith((".pb-c.h", ".inc")):
                yield line, f'"{name}" is not rooted at the repository root'
        elif name.endswith(".c"):
            yield line, f'"{name}": a .c file is compiled, never included'
        elif not name.startswith(may) and not name.endswith(".pb-c.h"):
            yield line, f'{folder} may not include "{name}": expected one of {", ".join(may)}'


# Banned calls.

HEAP = "malloc calloc realloc free"
PRINT = "printf fprintf puts vprintf vfprintf"
BANNED = (
    f"{HEAP} {PRINT} exit _exit abort getenv setenv strcpy strcat sprintf vsprintf atoi atol gets"
)
# The doors: where a banned call is the job of the file.  Each one is one file or one folder.
DOORS = {
    "engine/base/": BANNED,
    "clients/c/memory.c": HEAP,  # clients may not include engine/base
    "clients/cli/token.c": PRINT + " getenv",  # a secret is no option
    "clients/cli/": PRINT,  # a tool talks to a person
}


def check_calls(path, text):
    allowed = " ".join(words for door, words in DOORS.items() if path.startswith(door)).split()
    names = [name for name in BANNED.split() if name not in allowed]
    if names:
        yield from find_all(
            rf"(?<![\w.>])({'|'.join(names)})\s*\(",
            code_only(text),
            "{0}() is banned here: use engine/base",
        )


# libuv's timers.

TIMER_DOOR = "server/base/timer.c"


def check_timers(_path, text):
    yield from find_all(
        r"(?<![\w.>])(uv_timer_start|uv_timer_again|uv_timer_set_repeat)\s*\(",
        code_only(text),
        "{0}() is banned here: 0 ms in a timer's callback never ends; use " + TIMER_DOOR,
    )


# Lengths.

FUNCTION_LINES, FILE_LINES, PARAMETERS, COLUMNS = 70, 500, 5, 100
MARKDOWN_COLUMNS = 120
# Functions of stand-ins for vendors' libraries, and those that OpenSSL calls: their signatures are
# not ours.
VENDOR_NAME = re.compile(r"(cu|hip|hiprtc|nvml|nvrtc)[A-Z]|openssl_on_")
# A file may pass FILE_LINES only from here, with its reason; nothing passes 800.
LONG_FILES = {}


def check_functions(_path, text):
    for function in functions(text):
        if function.lines > FUNCTION_LINES:
            yield function.line, (
                f"{function.name} has {function.lines} lines: "
                f"expected at most {FUNCTION_LINES}"
            )
        if function.parameters > PARAMETERS and not VENDOR_NAME.match(function.name):
            yield function.line, (
                f"{function.name} has {function.parameters} parameters: "
                f"expected at most {PARAMETERS}, beyond that a struct"
            )


def check_file_length(path, text):
    count, most = text.count("\n"), min(800, LONG_FILES.get(path, FILE_LINES))
    if count > most:
        yield most, f"{count} lines: expected at most {most}, one idea per file"


def check_columns(path, text):
    most = MARKDOWN_COLUMNS if path.endswith(".md") else COLUMNS
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > most:
            yield number, f"{len(line)} columns: expected at most {most}"


# Headers.

PROTOTYPE = re.compile(
    r"^(?!static|typedef|#|\s|extern \"C\")[\w\s*]*?\b(\w+)\([^;{}]*\)[^;{}]*;", re.M
)
LIFETIME = re.compile(r"_(open|close|init|fini|build|give|take)$")


def check_header(_path, text):
    top, code = top_comment(text), code_only(text)
    names = PROTOTYPE.findall(code)
    if not names:
        return
    fields = {"Thread": "which thread may call"}
    if re.search(r"\bvx_status\b", code):
        fields["Fails"] = "what fails, and with which code"
    if any(LIFETIME.search(name) for name in names):
        fields["Owner"] = "who owns what it opens or builds"
    for field, what in fields.items():
        if not re.search(rf"^ \* {field}\b", top, re.M):
            yield 1, f"the top comment has no {field}: {what}"


def check_first_line(_path, text):
    if not re.match(r"/\* [\w./ -]+ - \S", top_comment(text)):
        yield 1, "expected the first line '/* name - what it is.'"


KERNEL_FIELDS = ("Math", "Shapes", "Types", "Cost", "Limits", "Oracle", "Source")


def check_kernel_header(path, text):
    if not re.match(r"kernels/\d\d_", path):
        return
    top = top_comment(text)
    for field in KERNEL_FIELDS:
        if not re.search(rf"^ \* {field}\b", top, re.M):
            yield 1, f"the top comment has no {field}"


# Tables, licences, words, white space.


def check_sorted(_path, text):
    if "Sorted by name" not in text:
        return
    previous = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r"[A-Z][A-Z_0-9]*\((\w+)", line)
        if not found:
            previous = previous if line.strip() else ""  # an empty line begins a new group
            continue
        if previous and found.group(1) < previous:
            yield number, f"{found.group(1)} stands after {previous}: the table says sorted by name"
        previous = found.group(1)


def needs_license(path):
    return (
        is_c(path)
        or path.endswith((".py", ".proto"))
        or path.startswith(("deploy/", "tests/", ".ci/"))
    )


def check_license(path, text):
    if not is_c(path) and not path.endswith((".py", ".proto")) and not SCRIPT.match(text):
        return
    if "SPDX-License-Identifier: Apache-2.0" not in text[:6000]:
        yield 1, "no line SPDX-License-Identifier: Apache-2.0"


def check_unfinished(_path, text):
    yield from find_all(
        r"\b(TO" "DO|FIX" "ME|XX" "X|HA" "CK)\\b",
        text,
        "{0}: finish it, or open an issue and leave no trace here",
    )


def check_white_space(_path, text):
    yield from find_all(r"[^\n]*?([ \t]+)$", text, "white space at the end of the line")
    if "\r" in text:
        yield 1, "carriage return: lines end with one newline"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield line_of(text, len(text)), "expected exactly one newline at the end of the file"


# Folders of one person's or one service's machine; system folders are everybody's.
MACHINE_PATH = r"(?:^|[^\w./$}-])(/(?:home|root|work|workspace|Users)/[\w.-]+)"
# A host that hands out packages or images is a setting of the machine, never of the tree: names
# that say so, and image names that begin with a host.
HOST = r"\b((?:[\w-]+\.)*[\w-]*(?:registry|artifact|mirror|proxy|packages)[\w-]*(?:\.[\w-]+)*"
HOST += r"\.(?:com|org|net|io|dev|cloud|internal|local|lan|pkg))\b"
IMAGE_HOST = r"(?<![\w./-])((?:[\w-]+\.)+(?:com|org|net|io|dev|cloud)(?::\d+)?/[\w.-]+/[\w.-]+:\w)"
URL_HOST = r"https?://((?!127\.0\.0\.1|localhost|\{|\$|%|\[)[\w.-]+\.[a-z]{2,})"
URLS_ALLOWED = {
    "www.apache.org",
    "github.com",
    "arxiv.org",
    "prometheus.io",
    "json.schemastore.org",
    "www.debian.org",  # the format of debian/copyright is named by its address
    "www.w3.org",  # SVG's namespace
}


def check_places(path, text):
    if path == "LICENSE":
        return
    yield from find_all(MACHINE_PATH, text, "{0}: a path of one machine")
    yield from find_all(
        HOST, text, "{0}: a package or image host, which is a setting of the machine"
    )
    yield from find_all(IMAGE_HOST, text, "{0}: an image name with a host in it")
    for line, host in find_all(URL_HOST, text, "{0}"):
        if host not in URLS_ALLOWED:
            yield line, f"{host}: this host is not in URLS_ALLOWED"


def sample(field_lines, code="VX_MUST_USE vx_status vx_a_open(struct vx_a **a);\n"):
    return f"/* a - what a is.\n *\n{field_lines} */\n{code}"


LONG_FUNCTION = "int f(void)\n{\n" + "    g();\n" * 69 + "}\n"
KERNEL = "/* 01_a - what.\n" + "".join(f" * {field}  x\n" for field in KERNEL_FIELDS) + " */\n"

RULES = [
    Rule(
        "include-law",
        "data goes one way: who may include whom",
        lambda p: is_c(p) and p.startswith(FOLDERS),
        check_includes,
        bad=[
            ("kernels/a.c", '#include "engine/base/status.h"\n'),
            ("kernels/a.c", "#include <cuda.h>\n"),
            ("engine/base/a.c", '#include "engine/engine.h"\n'),
            ("engine/a.c", "#include <grpc/grpc.h>\n"),
            ("engine/a.c", '#include "proto/codec.h"\n'),
            ("proto/a.c", '#include "server/call/call.h"\n'),
            ("proto/a.c", "#include <uv.h>\n"),
            ("server/a.c", '#include "engine/plan/plan.h"\n'),
            ("server/front/a.c", '#include "engine/engine.h"\n'),
            ("server/infer/a.c", "#include <grpc/grpc.h>\n"),
            ("server/worker/a.c", "#include <uv.h>\n"),
            ("server/a.c", '#include "kernels/kernel.h"\n'),
            ("clients/c/a.c", '#include "server/call/call.h"\n'),
            ("clients/c/a.c", '#include "engine/base/status.h"\n'),
            ("server/a.c", '#include "call.h"\n'),
            ("server/a.c", '#include "../proto/codec.h"\n'),
            ("tests/unit/a.c", '#include "engine/a.c"\n'),
            ("kernels/a.c", "#include <hip/hip_runtime.h>\n"),
        ],
        good=[
            ("server/worker/a.c", '#include "engine/engine.h"\n'),
            ("server/front/a.c", '#include "engine/signature.h"\n#include <uv.h>\n'),
            ("server/rpc/a.c", "#include <grpc/grpc.h>\n"),
            ("engine/cpu/a.c", '#include "kernels/kernel.h"\n#include <cblas.h>\n'),
            ("proto/a.c", '#include "proto/open_inference.pb-c.h"\n'),
            ("kernels/a.c", '// #include "engine/engine.h"\n'),
        ],
    ),
    Rule(
        "banned-calls",
        "memory, printing and the end of the process have one door each",
        is_ours,
        check_calls,
        bad=[("server/a.c", f"    {name}(x);\n") for name in BANNED.split()]
        + [
            ("clients/cli/a.c", "    p = malloc(4);\n"),
            ("clients/c/a.c", "    free(p);\n"),
            ("clients/cli/a.c", "    exit(1);\n"),
        ],
        good=[
            ("engine/base/a.c", "    abort();\n"),
            ("clients/cli/a.c", "    printf(x);\n"),
            ("clients/c/memory.c", "    free(p);\n"),
            ("server/a.c", "    vx_free(p); /* free(p) */\n"),
            ("server/a.c", '    log("exit()"); table->free(p); snprintf(b, 4, "x");\n'),
        ],
    ),
    Rule(
        "timers",
        "a timer that is due again at once must not keep the loop in libuv's timer phase",
        lambda p: is_ours(p) and p != TIMER_DOOR,
        check_timers,
        bad=[("server/a.c", "    uv_timer_start(&t, f, 0, 0);\n"),
             ("server/a.c", "    uv_timer_again(&t);\n")],
        good=[("server/a.c", "    vx_timer_once(&t, f, 0);\n")],
    ),
    Rule(
        "functions",
        "at most 70 lines and 5 parameters",
        is_c,
        check_functions,
        bad=[
            ("engine/a.c", LONG_FUNCTION),
            (
                "engine/a.c",
                "static int f(int a, int b, int c,\n             int d, int e, int f)\n{\n}\n",
            ),
        ],
        good=[
            ("engine/a.c", "int f(int a, int (*g)(int, int), int c, int d, int e)\n{\n}\n"),
            ("engine/a.c", LONG_FUNCTION.replace("    g();\n", "", 1)),
            (
                "tests/a.c",
                "int hipLaunch(int a, int b, int c,\n             int d, int e, int f)\n{\n}\n",
            ),
        ],
    ),
    Rule(
        "file-length",
        "one idea per file",
        lambda p: is_c(p) or p.endswith(".py"),
        check_file_length,
        bad=[("engine/a.c", "x\n" * 501)],
        good=[("engine/a.c", "x\n" * 500)],
    ),
    Rule(
        "columns",
        "100 columns in Python, 120 in Markdown; C is clang-format's business",
        lambda p: p.endswith((".py", ".md")),
        check_columns,
        bad=[("tests/a.py", "x" * 101), ("a.md", "x" * 121)],
        good=[("tests/a.py", "x" * 100), ("a.md", "x" * 120)],
    ),
    Rule(
        "header-fields",
        "a header says who owns, which thread, what fails",
        is_header,
        check_header,
        bad=[
            ("server/a.h", sample(" * Owner x\n * Thread x\n")),
            ("server/a.h", sample(" * Owner x\n * Fails x\n")),
            ("server/a.h", sample(" * Thread x\n * Fails x\n")),
        ],
        good=[
            ("server/a.h", sample(" * Owner x\n * Thread x\n * Fails x\n")),
            ("server/a.h", sample("", "struct a { int (*f)(int); };\n")),
            ("server/a.h", sample(" * Thread x\n", "int vx_a_bytes(int n);\n")),
        ],
    ),
    Rule(
        "first-line",
        "a header says what it is in one line",
        is_header,
        check_first_line,
        bad=[("server/a.h", "#ifndef A\n"), ("server/a.h", "/* Things. */\n")],
        good=[
            ("server/a.h", "/* a - what it is. */\n"),
            ("engine/model/a.h", "/* model/a - what it is. */\n"),
        ],
    ),
    Rule(
        "kernel-fields",
        "a kernel carries its mathematics",
        lambda p: re.match(r"kernels/.*\.h$", p) is not None,
        check_kernel_header,
        bad=[
            ("kernels/01_a.h", KERNEL.replace(f" * {field}  x\n", "")) for field in KERNEL_FIELDS
        ],
        good=[("kernels/01_a.h", KERNEL), ("kernels/types.h", "/* types - names. */\n")],
    ),
    Rule(
        "sorted-def",
        "a table that says it is sorted is",
        lambda p: p.endswith(".def"),
        check_sorted,
        bad=[("a.def", "/* Sorted by name. */\nVX_ROW(B, 1)\nVX_ROW(A, 1)\n")],
        good=[
            ("a.def", "/* Sorted by name. */\nVX_ROW(A, 1)\nVX_ROW(B, 1)\n\nVX_ROW(A, 2)\n"),
            ("a.def", "VX_ROW(B, 1)\nVX_ROW(A, 1)\n"),
        ],
    ),
    Rule(
        "license",
        "each file says under which licence it is",
        needs_license,
        check_license,
        bad=[("engine/a.c", "int x;\n"), ("a.py", "x = 1\n"), ("deploy/x", "#!/bin/bash\n")],
        good=[
            ("a.c", "/* SPDX-License-Identifier: Apache-2.0 */\n"),
            ("deploy/x.yaml", "a: b\n"),
        ],
    ),
    Rule(
        "unfinished",
        "what is not finished is an issue, not a comment",
        lambda p: not p.startswith("tests/tidy/"),
        check_unfinished,
        bad=[("a.c", "/* TO" + "DO: later */\n"), ("a.py", "# FIX" + "ME\n")],
        good=[("a.c", "/* todo_list */\n")],
    ),
    Rule(
        "white-space",
        "no noise in diffs",
        lambda p: p != "LICENSE",
        check_white_space,
        bad=[
            ("a.c", "x \n"),
            ("a.c", "x"),
            ("a.c", "x\n\n"),
            ("a.c", "x\r\n"),
            ("a.md", "x\t\n"),
        ],
        good=[("a.c", "x\n\ny\n"), ("a.c", "")],
    ),
    Rule(
        "places",
        "no machine paths and no package hosts",
        lambda p: not p.startswith("tests/tidy/"),
        check_places,
        bad=[
            ("a.md", "see /home/me/x\n"),
            ("a.sh", "cd /" "work/x\n"),
            ("a.md", "https://evil.example.com/x\n"),
            ("a.sh", "pull my-registry.example.io/x\n"),
            ("a.sh", "x=http://wheels.corp.internal/simple\n"),
            ("a.sh", "FROM images.example.io/library/debian:12\n"),
        ],
        good=[
            ("a.c", '#include "server/models/registry.h"\n'),
            ("a.md", "http://127.0.0.1:8002/metrics\n"),
            ("a.sh", "ls /usr/share/x /etc/x build/work/x\n"),
            ("a.md", "debian:12-slim nvidia/cuda:13.0.1\n"),
        ],
    ),
]
