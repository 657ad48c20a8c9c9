# SPDX-License-Identifier: Apache-2.0
"""voxeld at a terminal: every subcommand has help, and suggests what was probably meant."""
import os
import pathlib
import re
import subprocess

import pytest
from model_files import ConvModel
from voxeld_process import PATIENCE

VOXELD = os.environ["VOXELD"]
TOOLS = pathlib.Path(VOXELD).parent / "voxeld-tools"
COMMANDS = ["serve", "worker", "probe", "check", "tune", "compile", "bench", "devices", "record",
            "health"]
SPANS = ["--otlp-endpoint", "http://127.0.0.1:1"]
COLUMNS = ("column 0 is the sample, 0 to 511", "each -131072 to 131071",
           "spconv's [b, z, y, x] unchanged")


def run(*words, cwd=None):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=cwd,
                          errors="replace", timeout=PATIENCE)


@pytest.mark.parametrize("ask", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, ask):
    done = run(VOXELD, command, ask)
    assert done.returncode == 0 and not done.stderr, done
    # A manual's page begins with it.
    assert done.stdout.startswith(f"voxeld {command}"), done.stdout
    assert len(done.stdout.splitlines()) >= 3, done.stdout


@pytest.mark.parametrize("ask", ["--help", "-h", "help"])
def test_help_lists_the_commands_for_people(ask):
    done = run(VOXELD, ask)
    assert done.returncode == 0 and not done.stderr
    for command in set(COMMANDS) - {"worker", "probe"}:
        assert f"voxeld {command}" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["serve", "--help"], ["check", "--help"]])
def test_help_says_which_column_is_which(words):
    said = " ".join(run(VOXELD, *words).stdout.split())
    for column in COLUMNS:
        assert column in said, said


# --help behind other arguments prints the help, and the command does not run.
@pytest.mark.parametrize("words", [["serve", "--repository", "/nowhere", "-h"],
                                   ["check", "/nowhere", "--help"],
                                   ["compile", "--arch", "sm_90a", "--all", "--help"],
                                   ["tune", "--device", "fake", "-h"],
                                   ["bench", "--runs", "3", "--help"],
                                   ["record", "model", "--layers", "a", "--help"],
                                   ["health", "--http", "127.0.0.1:1", "--help"]])
def test_help_behind_other_words(words):
    done = run(VOXELD, *words)
    assert done.returncode == 0 and not done.stderr and words[0] in done.stdout, done


@pytest.mark.parametrize("words, nearest", [
    (["serv"], 'unknown command "serv"; the nearest is "serve"'),
    (["chekc", "m"], 'unknown command "chekc"; the nearest is "check"'),
    (["frobnicate"], 'unknown command "frobnicate"; known: serve, check, devices, compile, tune, '
     "bench, record, health, config, token\n"),
    (["serve", "--repo", "m"], "unknown setting '--repo'; the nearest is --repository (--help"),
    (["serve", "--repositry", "m"], "unknown setting '--repositry'; the nearest is --repository"),
    (["worker", "--grcp", "m"], "unknown setting '--grcp'; the nearest is --grpc"),
    (["bench", "--algoritm", "auto"], 'unknown option "--algoritm"; the nearest is "--algorithm"'),
    (["tune", "--shape", "a"], 'unknown option "--shape"; the nearest is "--shapes"'),
    (["compile", "--modle", "m"], 'unknown option "--modle"; the nearest is "--model"'),
    (["compile", "--arch", "sm_90a"], "voxeld compile: expected --all or --model DIR"),
    (["compile", "--all"],
     "voxeld compile: expected --arch ARCH\n\nvoxeld compile --arch ARCH (--all"),
    (["check", "--modle"], "expected MODEL_DIRECTORY [VERSION], got --modle"),
    (["check", "m", "1x"], 'expected VERSION as a whole number from 1 to 2147483647, got "1x"'),
    (["check", "m", " 1"], 'from 1 to 2147483647, got " 1"'),
    (["check", "m", "1.5"], 'from 1 to 2147483647, got "1.5"'),
    (["check", "m", "9" * 20], f'from 1 to 2147483647, got "{"9" * 20}"'),
    (["check"], "expected MODEL_DIRECTORY [VERSION], got nothing"),
    (["devices", "all"], 'unknown option "all"'),
    (["record", "m"],
     "voxeld record: expected --example FILE.npz\n\nvoxeld record MODEL_DIRECTORY[/VERSION]"),
    (["record", "m", "--example", "e", "-o", "r"], "voxeld record: -o: expected a file that"),
    (["record", "m", "--exmaple", "e"], 'unknown option "--exmaple"; the nearest is "--example"'),
    (["health", "--htp", "a:1"], 'expected --http HOST:PORT, got "--htp"'),
])
def test_words_that_are_not_known(words, nearest):
    done = run(VOXELD, *words)
    assert done.returncode == 2 and nearest in done.stderr, done


@pytest.mark.parametrize("flags,sentence", [
    (["--grpc", "18911"],
     "grpc: expected HOST:PORT or [V6]:PORT with a port from 0 to 65535, unix:PATH or "
     "systemd:NAME, got '18911'"),
    (["--grpc", "unix:/tmp/" + "0" * 103],
     "grpc: expected a Unix socket's path of at most 107 bytes, got 'unix:/tmp/00"),
    (["--http", "18911"], "http: expected HOST:PORT or [V6]:PORT"),
    (["--grpc", "localhost:70000"], "unix:PATH or systemd:NAME, got 'localhost:70000'"),
    (["--grpc", ""], "with a port from 0 to 65535, unix:PATH or systemd:NAME, got ''"),
    (["--grpc", "127.0.0.1:0,x"], "unix:PATH or systemd:NAME, got 'x'"),
    (["--grpc", ",".join(["127.0.0.1:0"] * 17)], "expected at most 16 addresses to listen on"),
    (["--http", "unix:/tmp/x"], "or systemd:NAME, got 'unix:/tmp/x'"),
    (["--http", ""], "or systemd:NAME, got ''"),
    (["--placement", "=cpu"], "placement: expected NAME=DEVICES or NAME=COUNT with a name"),
    (["--placement", "a"], "placement: expected NAME=DEVICES or NAME=COUNT, got 'a'"),
    (["--placement", "a=cpu;a=cpu"], "placement: expected one rule for each model, got two"),
    (["--placement", "a=cuda:0"], "placement: expected devices from --device, a number of devices"),
    (["--placement", "b=3"], "expected for 'b' at most the 1 of --device, or all, got 3"),
    (["--placement", "a=x", "--device", "auto"], "placement: expected devices from --device"),
    (["--device", "foo"], "device: expected cpu, cuda:N, cuda, hip:N, hip or auto, N from 0 to 15, "
     "got 'foo'"),
    (["--device", "cpu,cuda0"], "got 'cuda0'"),
    (["--device", "cpu,"], "got ''"),
    (["--device", ",".join(["cpu"] * 17)], "device: expected at most 16 devices, got more"),
    (["--in-process", "--device", "cpu,cpu"], "in_process: expected one device, got 2"),
    (["--in-process", "--device", "cuda,cpu"], "in_process: expected one device, got 2"),
    (["--grpc", "unix:/a,127.0.0.1:8077", "--http", "127.0.0.1:8077"],
     "grpc: expected another address than that of --http, got '127.0.0.1:8077' for both"),
    (["--load-model", "a"], "--load-model needs --model-control explicit, got none"),
    (["--load-model", "*", "--model-control", "poll"], "needs --model-control explicit, got poll"),
    (["--load-model", "a" * 128, "--model-control", "explicit"],
     "load_model: expected names of at most 127 bytes, got 'aaa"),
    (["--otlp-endpoint", "https://x:1"], "--otlp-endpoint: expected http://HOST:PORT, got 'https:"),
    (["--otlp-endpoint", "x:1"], "--otlp-endpoint: expected http://HOST:PORT or "),
    ([*SPANS, "--otlp-resource", "a"], "--otlp-resource: expected key=value,key=value"),
    ([*SPANS, "--otlp-ratio", "2"], "--otlp-ratio: expected a number from 0 to 1, got '2'"),
])
def test_a_text_that_is_wrong_is_said_by_the_check_as_by_the_start(tmp_path, flags, sentence):
    """systemd starts nothing when the check ends with 2, and not again when the start does."""
    for words in (["config", "--check"], ["serve"]):
        done = run(VOXELD, *words, "--repository", str(tmp_path), "--http", "127.0.0.1:0", *flags)
        assert done.returncode == 2 and sentence in done.stderr and not done.stdout, (words, done)


@pytest.mark.parametrize("flags", [
    ["--device", "cuda:7"], ["--device", "cuda", "--placement", "a=cuda:3"],
    ["--device", "auto", "--placement", "a=hip:1,cpu"], ["--device", "auto", "--in-process"],
    ["--grpc", "no.such.host:1"], ["--grpc", "systemd:grpc"], ["--http", "systemd:http"],
    ["--ready-file", "/nowhere/r"], ["--tokens", "/nowhere/t"], ["--repository", "/nowhere"],
])
def test_what_another_moment_or_machine_may_have_is_not_wrong(flags):
    done = run(VOXELD, "config", "--check", *flags)
    assert done.returncode == 0 and not done.stderr, done


@pytest.mark.parametrize("flags,sentence", [
    (["--ready-file", "/nowhere/r"], "ready_file: '/nowhere/r' cannot be written: No such file"),
    (["--grpc", "192.0.2.1:0"], 'why="grpc: cannot listen on ')])  # TEST-NET-1
def test_a_place_that_is_not_there_names_its_setting(tmp_path, flags, sentence):
    done = run(VOXELD, "serve", "--repository", str(tmp_path), "--http", "127.0.0.1:0", *flags)
    assert done.returncode == 1 and sentence in done.stderr, done


@pytest.mark.parametrize("flags,sentence", [
    (["--repository-poll-ms", "1s"],
     "--repository-poll-ms has no effect without --model-control poll"),
    (["--repository", "other"], "--repository: expected it once, got '"),
])
def test_a_setting_that_does_nothing_ends_the_start(tmp_path, flags, sentence):
    done = run(VOXELD, "serve", "--repository", str(tmp_path), *flags)
    assert done.returncode == 2 and sentence in done.stderr, done


def test_a_check_refuses_names_that_the_server_refuses(tmp_path):
    """By the last part of the path, of "." by the folder's own name."""
    for name, sentence in (("n" * 127, ""), ("n" * 128, "is too long for a model's name: expected "
                                             "at most 127 bytes, got 128\n"),
                           ("bad\udcff", "expected a name in UTF-8, got other bytes")):
        ConvModel().write(tmp_path, name)
        folder = tmp_path / name
        link = tmp_path / f"link-{len(name)}"
        link.symlink_to(folder)
        for words in ((str(folder),), (f"{folder}//",), (str(folder), "1"), (".",), ("1/..",)):
            done = run(VOXELD, "check", *words, cwd=folder)
            assert done.returncode == (1 if sentence else 0), (words, done)
            assert sentence in done.stderr and bool(done.stderr) == bool(sentence), done
        assert run(VOXELD, "check", link).returncode == 0  # a model by the link's name


def test_a_compile_in_a_log_says_how_far_it_is(tmp_path):
    ConvModel().write(tmp_path)
    done = run(VOXELD, "compile", "--arch", "fake", "--model", str(tmp_path / "conv"))
    assert done.returncode == 0, done
    lines = [line for line in done.stderr.splitlines() if line.startswith("voxeld compile: ")]
    last = re.fullmatch(r"voxeld compile: (\d+) of (\d+) binaries", lines[-1])
    assert last[1] == last[2] and len(lines) <= 10, done


def test_a_binary_is_named_by_its_kernel_type_and_tile(tmp_path):
    done = run(VOXELD, "compile", "--arch", "fake", "--all", "--binaries", tmp_path)
    assert done.returncode == 0, done
    names = sorted(path.name for path in tmp_path.iterdir())
    wrong = [name for name in names
             if not re.fullmatch(r"[a-z0-9_]+(-(fp32|fp16|bf16|tf32|e4m3))?(-\d+)*\.bin", name)]
    assert names and not wrong, wrong
    assert [name for name in names if name.startswith("conv_masked-e4m3-")], names


def test_no_command_is_an_error_with_the_help():
    done = run(VOXELD)
    assert done.returncode == 2 and "voxeld serve" in done.stderr and not done.stdout


@pytest.mark.skipif(not TOOLS.exists(), reason="voxeld-tools is not built")
def test_the_tools_alone_explain_themselves_too():
    for ask in ("--help", "-h"):
        done = run(TOOLS, ask)
        assert done.returncode == 0 and "devices" in done.stdout and not done.stderr
    done = run(TOOLS, "benhc")
    assert done.returncode == 2 and 'unknown tool "benhc"; the nearest is "bench"' in done.stderr


@pytest.mark.parametrize("flag", ["--cache-bytes", "--device-bytes"])
@pytest.mark.parametrize("size,known", [("4G", True), ("64MiB", True), ("4Q", False),
                                        ("1.5G", False), ("12", False), ("-4G", False)])
def test_record_takes_sizes_as_serve_does(tmp_path, flag, size, known):
    """A size that is known comes as far as the model, which is not there."""
    done = run(VOXELD, "record", tmp_path / "none", "--example", "e.npz", "-o", "r.npz", flag, size)
    said = "network.json" if known else f"{flag} as a whole number of bytes from 1048576"
    assert done.returncode == (1 if known else 2) and said in done.stderr, done
    assert known or f'with K, KiB, M, MiB, G, GiB, T, TiB or no suffix, got "{size}"' in done.stderr


def test_a_check_without_network_json_says_what_is_there(tmp_path):
    (tmp_path / "full" / "1").mkdir(parents=True)
    (tmp_path / "full" / "model.pt").touch()
    (tmp_path / "empty").mkdir()
    for name, said in (("full", "the directory has '1', 'model.pt'"),
                       ("empty", "the directory is empty"),
                       ("none", "there is no such directory")):
        done = run(VOXELD, "check", name, cwd=tmp_path)
        assert done.returncode == 1 and done.stderr.endswith(
            f"{name}/network.json: cannot be opened: No such file or directory; {said}\n"), done


@pytest.mark.parametrize("version", ["v1", "01", "0"])
def test_a_check_with_a_wrong_name_of_a_version_says_the_rule(tmp_path, version):
    ConvModel().write(tmp_path, "m", version=version)
    done = run(VOXELD, "check", "m", cwd=tmp_path)
    assert (f"; there is no directory 1, but there is '{version}': a version is an integer above "
            "0, without zeros before it\n") in done.stderr, done
