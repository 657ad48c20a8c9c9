#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy - the rules of the house, as a test.

    python3 tests/tidy/tidy.py               checks the tree; one line per finding
    python3 tests/tidy/tidy.py --self-test   checks the rules: each must catch its bad sample
    python3 tests/tidy/tidy.py --rules       prints every rule and its reason
    python3 tests/tidy/tidy.py --format      rewrites C sources with clang-format

A rule is a row in a list of *rules.py: what it reads, why it is there, and samples.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from comment_rules import RULES as COMMENT_RULES  # noqa: E402
from kernel_rules import RULES as KERNEL_RULES  # noqa: E402
from rules import RULES as SOURCE_RULES  # noqa: E402
from test_rules import RULES as TEST_RULES  # noqa: E402
from tree_rules import CLANG_FORMAT, RULES as TREE_RULES  # noqa: E402

FILE_RULES = SOURCE_RULES + COMMENT_RULES + KERNEL_RULES + TEST_RULES
TREE = pathlib.Path(__file__).resolve().parents[2]
OUTSIDE = {".git", ".carry", "build", "__pycache__", ".pytest_cache", ".cache", "shared"}
BINARY = {".png", ".safetensors", ".ply", ".npy", ".npz", ".gz", ".pyc", ".ico", ".jpg", ".bin"}


def tree_files():
    """Every text file of the tree, by its path from the root."""
    files = {}
    for folder, folders, names in os.walk(TREE):
        folders[:] = sorted(
            name for name in folders if name not in OUTSIDE and not name.endswith(".egg-info")
        )
        for name in sorted(set(names) - OUTSIDE):  # `.git` is a file in a worktree
            path = pathlib.Path(folder, name)
            relative = path.relative_to(TREE).as_posix()
            if path.suffix in BINARY or path.is_symlink() or "fuzz/corpus" in relative:
                continue
            files[relative] = path.read_text(encoding="utf-8", errors="replace")
    return files


def check_tree():
    files = tree_files()
    findings = []
    for path, text in files.items():
        for rule in FILE_RULES:
            if rule.applies(path):
                findings += [
                    f"{path}:{line}: {what} [{rule.name}]"
                    for line, what in rule.check(path, text)
                ]
    for rule in TREE_RULES:
        findings += [f"{what} [{rule.name}]" for what in rule.check(TREE, files)]
    print("\n".join(findings))
    print(
        f"tidy: {len(files)} files, {len(FILE_RULES) + len(TREE_RULES)} rules, "
        f"{len(findings)} findings"
    )
    return 1 if findings else 0


def self_test():
    """A rule that cannot fail is no rule: every one has a sample that it must refuse."""
    wrong = []
    for rule in FILE_RULES:
        if not rule.bad:
            wrong.append(f"{rule.name} has no bad sample")
        for path, text in rule.bad:
            if not rule.applies(path) or not list(rule.check(path, text)):
                wrong.append(f"{rule.name} lets pass {path}: {text[:70]!r}")
        for path, text in rule.good:
            if not rule.applies(path) or list(rule.check(path, text)):
                wrong.append(f"{rule.name} refuses {path}: {text[:70]!r}")
    for rule in TREE_RULES:
        wrong += rule.self_test()
    print("\n".join(wrong))
    print(f"tidy: {len(FILE_RULES) + len(TREE_RULES)} rules tested, {len(wrong)} wrong")
    return 1 if wrong else 0


def print_rules():
    for rule in FILE_RULES + TREE_RULES:
        print(f"{rule.name:16} {rule.why}")
    return 0


def rewrite():
    sources = [path for path in tree_files() if path.endswith((".c", ".h", ".cu", ".cuh"))]
    return subprocess.run([CLANG_FORMAT, "-i", *sources], cwd=TREE, check=False).returncode


COMMANDS = {"": check_tree, "--self-test": self_test, "--rules": print_rules, "--format": rewrite}

if __name__ == "__main__":
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word not in COMMANDS:
        sys.exit(
            f"tidy: unknown argument {word!r}: expected one of {', '.join(filter(None, COMMANDS))}"
        )
    sys.exit(COMMANDS[word]())
