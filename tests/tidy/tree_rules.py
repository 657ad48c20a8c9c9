# SPDX-License-Identifier: Apache-2.0
"""Rules about the tree as a whole: formatting, scripts, and that READMEs are right.

Each check gets the root and {path: text} and returns sentences; each self-test writes a small
wrong tree and expects a finding.
"""

import json
import pathlib
import re
import runpy
import shutil
import subprocess
import tempfile
from typing import Callable, NamedTuple

from rules import FOLDERS, SCRIPT, is_c

MUTANTS = pathlib.Path(__file__).resolve().parents[1] / "mutants" / "run"
CLANG_FORMAT = shutil.which("clang-format-14") or "clang-format"


class TreeRule(NamedTuple):
    name: str
    why: str
    check: Callable
    bad: list  # trees ({path: text}) that must be refused
    good: list  # trees that must pass

    def self_test(self):
        wrong = []
        for trees, refused in ((self.bad, True), (self.good, False)):
            for tree in trees:
                with tempfile.TemporaryDirectory() as folder:
                    root = pathlib.Path(folder)
                    for path, text in tree.items():
                        (root / path).parent.mkdir(parents=True, exist_ok=True)
                        (root / path).write_text(text, encoding="utf-8")
                    found = self.check(root, tree)
                if bool(found) != refused:
                    wrong.append(f"{self.name}: {sorted(tree)} gives {found}")
        return wrong


# Tools that judge files.


def tool_lines(root, command):
    """What a tool complains about; a missing tool is a finding, not a pass."""
    try:
        done = subprocess.run(
            command,
            cwd=root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except FileNotFoundError:
        return [f"{command[0]} is not installed: run deploy/install-deps"]
    if done.returncode == 0:
        return []
    return [line for line in done.stdout.splitlines() if re.search(r":\d+:", line)] or [
        done.stdout.strip()[:400] or f"{command[0]} ended with {done.returncode}"
    ]


def check_format(root, files):
    sources = [path for path in files if is_c(path)]
    if not sources:
        return []
    found = tool_lines(root, [CLANG_FORMAT, "--dry-run", "--Werror", *sources])
    # One sentence per file: the fix is one command for all of them.
    names = sorted({line.split(":", 1)[0] for line in found})
    return [
        (
            f"{name}: not formatted: build target `format`, or tests/tidy/tidy.py --format"
            if name in files
            else name
        )
        for name in names
    ]


def check_shell(root, files):
    scripts = [path for path, text in files.items() if re.match(r"#!.*\b(bash|sh)\b", text)]
    return tool_lines(root, ["shellcheck", "--format=gcc", *scripts]) if scripts else []


def check_executable(root, files):
    """A file with a #! line can be run, so that every README may call it by its path."""
    return [
        f"{path}: has a #! line but is not executable"
        for path, text in files.items()
        if SCRIPT.match(text) and not (root / path).stat().st_mode & 0o100
    ]


# READMEs.


def check_readme_places(_root, files):
    return [
        f"{folder}/README.md is missing: what enters, what leaves, reading order, Decisions"
        for folder in FOLDERS
        if f"{folder}/README.md" not in files and any(p.startswith(f"{folder}/") for p in files)
    ]


def check_links(root, files):
    found = []
    for path, text in files.items():
        if not path.endswith(".md"):
            continue
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)|src=\"([^\"]+)\"", without_fences(text)):
            name = target[0] or target[1]
            if not re.match(r"\w+:", name) and not (root / path).parent.joinpath(name).exists():
                found.append(f"{path}: link to {name}, which does not exist")
        for name in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]+)`", text):
            if not any(root.glob(name)):
                found.append(f"{path}: names {name}, which does not exist")
    return found


def without_fences(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)


def shell_lines(text):
    """The command lines of every ```sh block, with continued lines joined."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
        for line in block.replace("\\\n", " ").split("\n"):
            words = line.split("#", 1)[0].split()
            while words and re.match(r"\w+=", words[0]):
                words = words[1:]
            if words:
                yield words


def check_commands(root, files):
    """A ```sh block in a README is meant to be typed: programs of the tree must be there."""
    settings = set(re.findall(r"^VX_\w+\((\w+),", files.get("server/base/config.def", ""), re.M))
    found = []
    for path, text in files.items():
        if not path.endswith(".md"):
            continue
        for words in shell_lines(text):
            program = words[0].removeprefix("./")
            if program.split("/")[0] in FOLDERS and not (root / program).is_file():
                found.append(f"{path}: {program} does not exist")
            if program.endswith("voxeld") and words[1:2] == ["serve"] and settings:
                flags = [re.match(r"--(?:no-)?([\w-]+)", word) for word in words[2:]]
                names = [flag.group(1).replace("-", "_") for flag in flags if flag]
                found += [
                    f"{path}: voxeld serve has no flag --{name.replace('_', '-')}"
                    for name in names
                    if name not in settings and name not in ("help", "config")
                ]
            if words[:2] in (
                ["cmake", "--preset"],
                ["ctest", "--preset"],
            ) and f'"name": "{words[2]}"' not in files.get("CMakePresets.json", ""):
                found.append(f"{path}: CMakePresets.json has no preset {words[2]}")
    return found


def check_mutants(root, files):
    """Code moves, and a row that no longer fits is a mistake that nobody makes any more."""
    run = runpy.run_path(str(MUTANTS))
    tables = [root / path for path in files if re.fullmatch(r"tests/mutants/[^/]+\.json", path)]
    try:
        return [
            f"tests/mutants/{row['where']} ({row['file']}, {row['what']}): {sentence}"
            for row in run["rows_read"](tables)
            for _, changed, _, sentence in [run["mistake_make"](row, root)]
            if changed is None
        ]
    except run["TableError"] as error:
        return [f"tests/mutants: {error}"]


def mutant(**row):
    """A tree with one mistake and the file that it is made in."""
    row = {"file": "a.c", "old": "a = 1;", "new": "", "what": "a is 0", "tests": "^a$", **row}
    return {"tests/mutants/a.json": json.dumps([row]), "a.c": "b();\na = 1;\nc();\na = 2;\n"}


BAD_FORMAT = {"a.c": "int   f( void ) { return 1 ; }\n", ".clang-format": "BasedOnStyle: LLVM\n"}
GOOD_FORMAT = {"a.c": "int f(void) { return 1; }\n", ".clang-format": "BasedOnStyle: LLVM\n"}

RULES = [
    TreeRule(
        "format",
        "clang-format 14 decides, so that nobody has to",
        check_format,
        [BAD_FORMAT],
        [GOOD_FORMAT],
    ),
    TreeRule(
        "shell",
        "shellcheck reads every shell script",
        check_shell,
        [{"a": "#!/bin/bash\nrm -rf $1/*\n"}],
        [{"a": '#!/bin/bash\necho "$1"\n'}],
    ),
    TreeRule(
        "executable",
        "a script can be called by its path",
        check_executable,
        [{"a": "#!/bin/bash\n"}],
        [{"a": "echo\n"}],
    ),
    TreeRule(
        "readme",
        "each top folder has a page",
        check_readme_places,
        [{"server/a.c": ""}],
        [{"server/a.c": "", "server/README.md": ""}],
    ),
    TreeRule(
        "links",
        "local links, and files that are named, are there",
        check_links,
        [
            {"README.md": "[a](none.md)\n"},
            {"deploy/README.md": '<img src="no.png">\n'},
            {"README.md": "as `tests/unit/none` says\n", "tests/unit/a.c": ""},
        ],
        [
            {"README.md": "[a](b.md#part) [b](https://x.y)\n```\n[c](none)\n```\n", "b.md": ""},
            {"README.md": "`server/a*`, `server/b.c`\n", "server/ab.c": "", "server/b.c": ""},
        ],
    ),
    TreeRule(
        "commands",
        "what a README tells people to type exists",
        check_commands,
        [
            {"README.md": "```sh\ndeploy/none --keep\n```\n"},
            {
                "README.md": "```sh\nvoxeld serve --nope 1\n```\n",
                "server/base/config.def": "VX_I64(threads, 0)\n",
            },
            {"README.md": "```sh\ncmake --preset none\n```\n", "CMakePresets.json": ""},
        ],
        [
            {
                "README.md": "```sh\n./deploy/x --keep # why\nA=1 voxeld serve --threads 2\n```\n",
                "deploy/x": "",
                "server/base/config.def": "VX_I64(threads, 0)\n",
            }
        ],
    ),
    TreeRule(
        "mutants",
        "each mistake of tests/mutants has one place in the sources",
        check_mutants,
        [
            mutant(old="a = 3;"),
            mutant(old="a = "),
            mutant(old="a = 1;", after="c();"),
            mutant(file="b.c"),
            mutant(line=2),
        ],
        [mutant(), mutant(old="a = ", after="c();")],
    ),
]
