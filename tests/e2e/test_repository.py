# SPDX-License-Identifier: Apache-2.0
"""Repositories with mistakes: the server reports each, and what was expected."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import grpc
import numpy as np
import pytest

import voxeld
from model_files import ConvModel, random_grid
from test_protocol import Reflected
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

STRANGER = "10001"  # the user in the container's image


def refused(path):
    """What voxeld says to a repository that it does not start with."""
    done = subprocess.run([os.environ["VOXELD"], "serve", "--repository", str(path), "--grpc",
                           "127.0.0.1:0", "--http", "127.0.0.1:0"],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1, done.stderr
    return done.stderr


def status(daemon):
    done = subprocess.run([os.environ["VOXEL"], "status", "--server", daemon.grpc],
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout


def test_what_cannot_be_a_repository_is_refused_at_start(tmp_path):
    ConvModel().write(tmp_path, "normals")
    assert ("cannot be read: No such file or directory; expected a directory with a directory for "
            "each model in it") in refused(tmp_path / "nowhere")
    for part in ("normals", "normals/1"):
        said = refused(tmp_path / part)
        assert "is a model's own directory" in said and "expected the directory above it" in said


@pytest.mark.parametrize("flags", [(), ("--model-control", "poll"),
                                   ("--model-control", "explicit")])
def test_an_empty_repository_serves_and_says_what_was_expected(tmp_path, flags):
    repository = tmp_path / "repository"
    repository.mkdir()
    with Daemon(repository, tmp_path, *flags, wait_ready=False) as daemon, \
            Client(daemon.grpc) as client:
        expected = "has no models: expected NAME/network.json and NAME/1/weights.safetensors in it"
        daemon.wait_for("the sentence", lambda: expected in daemon.log())
        daemon.wait_for("it on the page",
                        lambda: expected in daemon.get("/v2/health/ready")[1])
        code, text = status(daemon)
        assert code == 0 and "the server has no models" in text  # as Triton, it is ready for loads
        with pytest.raises(voxeld.NotFound) as caught:
            client.model_metadata("conv")
        assert "'conv' is not found: this server has no models" in caught.value.message


def test_what_is_not_ready_is_named_with_its_reason(tmp_path):
    repository = tmp_path / "repository"
    for name in ("good", "normals", "segment"):
        ConvModel().write(repository, name)
    (repository / "normals" / "network.json").write_text("{}")
    (repository / "segment" / "1" / "weights.safetensors").unlink()
    with Daemon(repository, tmp_path, wait_ready=False) as daemon, Client(daemon.grpc) as client:
        daemon.wait_for("both to fail", lambda: daemon.log().count("MODEL_FAILED") == 2)
        daemon.wait_for("the good one", lambda: daemon.log().count("MODEL_READY") == 1)
        code, body = daemon.get("/v2/health/ready")
        assert code == 503
        missed = {m["name"]: m["why"] for m in json.loads(body)["not_ready"]}
        assert set(missed) == {"normals", "segment"}
        assert "network.json" in missed["normals"]
        assert "No such file or directory" in missed["segment"]
        code, text = status(daemon)
        assert code == 1
        assert "normals version 1 is not ready: UNAVAILABLE: " in text
        assert "segment version 1 is not ready: UNAVAILABLE: " in text
        assert "good version 1 is not ready" not in text
        assert "tell why" not in text  # it has told
        with pytest.raises(voxeld.NotFound) as caught:
            client.model_metadata("gud")
        assert "'gud' is not found: this server has 'good'" in caught.value.message


def test_a_model_without_a_version_folder_is_named_with_what_was_expected(tmp_path):
    repository = tmp_path / "repository"
    for name in ("flat", "good"):
        ConvModel().write(repository, name)
    (repository / "flat" / "1" / "weights.safetensors").rename(
        repository / "flat" / "weights.safetensors")
    (repository / "flat" / "1").rmdir()
    (repository / "hollow").mkdir()  # a later mistake must not hide it
    expected = "'flat' has no version: expected a directory with a number, with flat/1/weights"
    with Daemon(repository, tmp_path, wait_ready=False) as daemon, Client(daemon.grpc) as client:
        daemon.wait_said(expected)
        daemon.wait_said("MODEL_READY")
        daemon.wait_said("'hollow' has no version")
        code, text = status(daemon)
        assert code == 1 and f"flat version - is not ready: UNAVAILABLE: {expected}" in text
        assert "hollow" not in text
        missed, = json.loads(daemon.get("/v2/health/ready")[1])["not_ready"]
        assert (missed["name"], missed["version"]) == ("flat", "") and expected in missed["why"]
        assert not daemon.ready_file.exists()
        with pytest.raises(voxeld.NotFound) as caught:
            client.model_metadata("flat")
        assert f"'flat' is not found: {expected}" in caught.value.message
        (repository / "flat" / "weights.safetensors").unlink()
        ConvModel().write(repository, "flat")
        daemon.signal(signal.SIGHUP)
        daemon.wait_ready()


def why_not(daemon):
    """{name: why} of what the server is not ready for."""
    code, body = daemon.get("/v2/health/ready")
    assert (code == 200) == json.loads(body)["ready"]
    return {m["name"]: m["why"] for m in json.loads(body).get("not_ready", [])}


def test_a_name_that_load_model_has_and_the_repository_has_not(tmp_path):
    repository = tmp_path / "repository"
    for name in ("half", "idle"):
        ConvModel().write(repository, name)
    absent = "it is named by load_model and is not in the repository"
    with Daemon(repository, tmp_path, "--model-control", "explicit", "--load-model", "hlf,half",
                wait_ready=False) as daemon, Client(daemon.grpc) as client:
        daemon.wait_said("MODEL_READY")
        daemon.wait_said(absent)  # the log explains why there is no ready file
        assert not client.server_ready() and not daemon.ready_file.exists()
        assert why_not(daemon) == {"hlf": f"model 'hlf' cannot be served: {absent}"}
        assert answers(daemon)[0]["hlf"] == {
            "name": "hlf", "state": "UNAVAILABLE", "reason": absent}
        code, text = status(daemon)
        assert code == 1 and f"hlf version - is not ready: UNAVAILABLE: {absent}\n" in text
        assert "idle" not in text
        with pytest.raises(voxeld.NotFound) as caught:
            client.infer("idle", *random_grid(1, 10))
        assert caught.value.message.startswith("Request for unknown model: 'idle'")
        assert ("it is in the repository and not loaded: load it with RepositoryModelLoad"
                in caught.value.message)
        ConvModel().write(repository, "hlf")
        with grpc.insecure_channel(daemon.grpc) as channel:
            Reflected(channel).call("RepositoryModelLoad", model_name="hlf")
        daemon.wait_ready()
        assert client.server_ready() and not why_not(daemon) and status(daemon)[0] == 0


@pytest.mark.parametrize("flags", [(), ("--model-control", "explicit", "--load-model", "half,v")])
def test_a_model_folder_without_a_usable_version_is_not_ready(tmp_path, flags):
    repository = tmp_path / "repository"
    ConvModel().write(repository, "half")
    ConvModel().write(repository, "v", version="v1")
    (repository / "v" / "v1").rename(repository / "v" / "001")
    (repository / "lost+found").mkdir()  # no model
    (repository / "loop").symlink_to("loop")  # one that nobody, not even root, can read
    expected = ("'v' has no version: expected a directory with a number without zeros before it, "
                "with v/1/weights.safetensors in it; there is '001'")
    with Daemon(repository, tmp_path, *flags, wait_ready=False) as daemon:
        daemon.wait_said("MODEL_READY")
        missed = why_not(daemon)
        assert missed["v"] == f"model 'v' cannot be served: {expected}"
        assert set(missed) == ({"v"} if flags else {"v", "loop"})  # no client asked for loop
        code, text = status(daemon)
        assert code == 1 and f"v version - is not ready: UNAVAILABLE: {expected}\n" in text
        assert ("loop version - is not ready" in text) == (not flags)
        (repository / "loop").unlink()
        (repository / "v" / "001").rename(repository / "v" / "1")
        daemon.signal(signal.SIGHUP)
        daemon.wait_ready()
        assert status(daemon)[0] == 0


def answers(daemon):
    """Answers about all models: one byte that is not UTF-8 makes a whole answer unreadable."""
    with grpc.insecure_channel(daemon.grpc) as channel:
        said = Reflected(channel)
        index = {m["name"]: m for m in said.call("RepositoryIndex")["models"]}
        counted = {m["name"] for m in said.call("ModelStatistics")["model_stats"]}
    return index, counted, {path: daemon.get(path)[1]
                            for path in ("/v2/health/ready", "/metrics", "/")}


def test_a_name_beyond_ascii_leaves_every_answer_readable(tmp_path):
    repository, hollow = tmp_path / "repository", "a" + "é" * 30
    for name in ("good", "café", "bad\udcff"):  # surrogateescape: the byte ff
        ConvModel().write(repository, name)
    (repository / "good" / hollow).mkdir()
    (repository / hollow).mkdir()
    (repository / hollow / "network.json").write_text("{}")
    for name, word in (("even", "é" * 40), ("odd", "x" + "é" * 40)):  # a limit cuts in a character
        misspelt = ConvModel()
        misspelt.network["layers"][1]["input"] = word
        misspelt.write(repository, name)
    with Daemon(repository, tmp_path, wait_ready=False) as daemon:
        daemon.wait_said("MODEL_READY", 2)
        daemon.wait_said("MODEL_FAILED", 2)
        index, counted, pages = answers(daemon)
        assert set(index) == {"good", "café", hollow, "even", "odd", "bad?"}
        assert "éé" in index["even"]["reason"] and "xéé" in index["odd"]["reason"]
        assert "has no version" in index[hollow]["reason"]
        assert "not served" in index["good"]["reason"]
        assert counted == {"good", "café"}
        missed = {m["name"] for m in json.loads(pages["/v2/health/ready"])["not_ready"]}
        assert missed == {"even", "odd", hollow, "bad?"}
        assert 'model="café"' in pages["/metrics"] and "café" in pages["/"]
        assert 'model="bad' not in pages["/metrics"]
        daemon.wait_said("the model directory 'bad?' is ignored: expected a name in UTF-8")


def test_a_hundred_models_are_served(tmp_path):
    repository, names = tmp_path / "repository", [f"m{i:03}" for i in range(100)]
    model = ConvModel()
    model.network["warmup"] = [10]
    for name in names:
        model.write(repository, name)
    coords, feats = random_grid(7, 20)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        listed = subprocess.run([os.environ["VOXEL"], "models", "--server", daemon.grpc],
                                capture_output=True, text=True, timeout=PATIENCE).stdout
        assert all(f"{name} version 1 READY\n" in listed for name in names)
        code, text = status(daemon)
        assert code == 0 and "not ready" not in text
        for name in (names[0], names[63], names[64], names[99]):
            out = client.infer(name, coords, feats)["out"]
            assert np.abs(out - model.answer(coords, feats)).max() < 1e-4
        # One scrape holds them all, and so does the page.
        scraped = daemon.get("/metrics")[1]
        assert all(f'model="{name}"' in scraped for name in names)
        assert all(name in daemon.get("/")[1] for name in names)


def test_a_directory_that_is_no_version_is_noted_beside_one_that_serves(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    expected = "'conv' has the directory 'v2', not served: expected a version number"
    def noted():
        code, text = status(daemon)
        return code == 0 and f"conv version 1 is ready: {expected}" in text

    with Daemon(repository, tmp_path) as daemon:
        ConvModel(seed=2).write(repository, version="v2")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_said(expected)
        # The same SIGHUP reloads the model, since its common files were rewritten.
        daemon.wait_for("status to note it", noted)
        body = json.loads(daemon.get("/v2/health/ready")[1])
        assert body["ready"] and expected in body["note"]


def test_a_folder_that_no_request_can_name_is_not_served_and_said(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    ConvModel().write(repository, "l" * 200)
    ConvModel().write(repository, "esc\x1b[31mred")
    os.rename(os.fsencode(repository / "conv"), os.fsencode(repository) + b"/bad\xff")
    with Daemon(repository, tmp_path, wait_ready=False) as daemon:
        daemon.wait_said("MODEL_READY")
        code, text = status(daemon)
        assert code == 1
        assert (f"{'l' * 127} version - is not ready: UNAVAILABLE: '{'l' * 60}...' is too long for "
                "a model's name: expected at most 127 bytes, got 200\n") in text
        assert ("bad? version - is not ready: UNAVAILABLE: the model directory 'bad?' is ignored: "
                "expected a name in UTF-8, got other bytes, shown as '?'\n") in text
        body = json.loads(daemon.get("/v2/health/ready")[1])
        assert not body["ready"] and {m["name"] for m in body["not_ready"]} == {"bad?", "l" * 127}
        # A name may have any character, and none of them is the terminal's.
        listed = subprocess.run([os.environ["VOXEL"], "models", "--server", daemon.grpc],
                                capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
        for shown in (text, listed):
            assert r"esc\x1b[31mred" in shown and "\x1b" not in shown


@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu"])
def test_what_check_notes_is_in_the_log_once(tmp_path, devices):
    model = ConvModel()
    model.tensors["conv.bias"][2] = np.nan
    model.tensors["bn.weight"] = np.ones(8, np.float32)  # no layer uses this tensor
    model.write(tmp_path / "repository")
    count = len(devices.split(","))
    with Daemon(tmp_path / "repository", tmp_path, "--device", devices) as daemon:
        daemon.wait_said("WORKER_READY", count)  # the daemon is ready with the first of them
        daemon.wait_said("MODEL_NOTE", 2)  # what a killed process has not written is lost
        for worker in daemon.workers():  # a reload does not report it again
            os.kill(worker, signal.SIGKILL)
        daemon.wait_said("WORKER_READY", 2 * count)
        with Client(daemon.grpc) as client:
            client.infer("conv", *random_grid(1, 10))
        said = [line for line in daemon.log().splitlines() if "MODEL_NOTE" in line]
    assert len(said) == 2 and all("model=conv version=1" in line for line in said), said
    assert "no layer reads bn.weight; if training used it" in said[0]
    assert "NaN or infinity in conv.bias" in said[1] and " warn " in said[1]


def test_who_edits_the_network_of_all_versions_is_told(tmp_path):
    repository = tmp_path / "repository"
    for version in (1, 2, 3):
        ConvModel(version).write(repository, "conv", version)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        with pytest.raises(voxeld.NotFound) as caught:
            client.infer("conv", *random_grid(1, 10), version=7)
        assert "version 7 is not found: this server has versions 1, 2, 3" in caught.value.message
        daemon.wait_said("MODEL_READY", 3)
        model = ConvModel(4)  # from now on the network of 1, 2 and 3 differs too
        model.network["layers"][1]["op"] = "silu"
        model.write(repository, "conv", 4)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_said("MODEL_NETWORK", 1)
        said, = [line for line in daemon.log().splitlines() if "MODEL_NETWORK" in line]
    assert " warn " in said and 'model=conv versions="1, 2, 3"' in said, said
    assert "network.json changed, and all versions share it" in said


def test_a_folder_that_cannot_be_read_keeps_only_its_own_model(tmp_path):
    """A roll-back is carried out, whatever else is broken in the repository."""
    repository = tmp_path / "repository"
    for version in (1, 2):
        ConvModel(version).write(repository, "conv", version)
    for name in ("kept", "old"):
        ConvModel().write(repository, name)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        daemon.wait_said("MODEL_READY", 4)
        shutil.rmtree(repository / "conv" / "2")
        shutil.rmtree(repository / "old")
        shutil.rmtree(repository / "kept")
        (repository / "kept").symlink_to("kept")  # a link to itself: ELOOP
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_said("MODEL_UNLOADED", 2)
        client.infer("kept", *random_grid(1, 10))
        client.infer("conv", *random_grid(1, 10), version=1)
        for name, version in (("conv", 2), ("old", 1)):
            with pytest.raises(voxeld.NotFound):
                client.infer(name, *random_grid(1, 10), version=version)
        said = daemon.log()
        assert "model directory 'kept' cannot be read: Too many levels" in said
        assert 'not_unloaded=1 first="kept version 1" why="these versions stay as they' in said
        (repository / "kept").unlink()
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_said("MODEL_UNLOADED", 3)


def check(folder, *words):
    done = subprocess.run([os.environ["VOXELD"], "check", *words], cwd=folder,
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stderr


def test_a_check_of_another_folder_says_which_is_meant(tmp_path):
    for name in "abcd":
        ConvModel().write(tmp_path / "repository", name)
    for path in ("repository", "repository/", "./repository//"):
        code, said = check(tmp_path, path)
        assert code == 1 and "models (a, b, c and more): name one of them, such as a" in said
    for path in ("network.json", "1", "1/", "1/weights.safetensors"):
        code, said = check(tmp_path, f"repository/a/{path}")
        assert code == 1 and "; give the model's folder, repository/a\n" in said
    assert "; give the model's folder, .\n" in check(tmp_path / "repository" / "a", "1")[1]
    (tmp_path / "none").mkdir()
    for path in ("none", "nowhere", "nowhere/1"):
        code, said = check(tmp_path, path)
        end = "the directory is empty" if path == "none" else "there is no such directory"
        assert code == 1 and said.endswith(f"No such file or directory; {end}\n")
        assert said.startswith(f"voxeld check {path}: NOT_FOUND: ")
    ConvModel().write(tmp_path / "inner")
    inner = tmp_path / "inner" / "conv"
    (inner / "network.json").rename(inner / "1" / "network.json")
    assert ("; there is 1/network.json: move it beside the directory 1, because all versions "
            "share it\n") in check(tmp_path, "inner/conv")[1]
    compiled = subprocess.run([os.environ["VOXELD"], "compile", "--arch", "sm_90a", "--model",
                               "repository"], cwd=tmp_path, capture_output=True, text=True,
                              timeout=PATIENCE)
    assert compiled.returncode and "it is a repository of models" in compiled.stderr


def test_a_check_without_the_version_says_what_is_there(tmp_path):
    model = tmp_path / "m"
    ConvModel().write(tmp_path, "m", version="v1")
    expected = "m/1/weights.safetensors: cannot be opened: No such file or directory; "
    assert expected + "there is no directory 1, but there is 'v1': a" in check(tmp_path, "m")[1]
    (model / "v1").rename(model / "1")
    (model / "1" / "weights.safetensors").rename(model / "1" / "model.safetensors")
    assert expected + "the directory 1 has 'model.safetensors'\n" in check(tmp_path, "m")[1]
    (model / "1" / "model.safetensors").rename(model / "weights.safetensors")
    assert expected + "it lies beside network.json: move it to 1/\n" in check(tmp_path, "m")[1]
    (model / "weights.safetensors").unlink()
    assert expected + "the directory 1 is empty\n" in check(tmp_path, "m")[1]
    (model / "1").rmdir()
    assert expected + "there is no directory 1, and no other one\n" in check(tmp_path, "m")[1]
    (model / "1").mkdir()
    (model / "1" / "weights.safetensors").symlink_to("../../blobs/5e7a")
    assert ("m/1/weights.safetensors: cannot be opened: No such file or directory: it is a link to "
            "'../../blobs/5e7a', which is not there\n") in check(tmp_path, "m")[1]
    for version in range(2, 6):
        (model / str(version)).mkdir()
    assert "there is no directory 7, but there are '1', '2', '3' and more\n" in check(
        tmp_path, "m", "7")[1]


def check_all(folder, *words):
    """Exit code, headings, and both streams as a terminal shows them."""
    done = subprocess.run([os.environ["VOXELD"], "check", *words], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
    lines = done.stdout.splitlines()
    return done.returncode, [line for line in lines if line.startswith("version ")], done.stdout


def test_a_check_reads_every_version(tmp_path):
    for version in (10, 1, 2):
        ConvModel(version).write(tmp_path, "m", version)
    (tmp_path / "m" / "backup").mkdir()
    headings = [f"version {version} of 1, 2, 10" for version in (1, 2, 10)]
    code, said, text = check_all(tmp_path, "m")
    assert code == 0 and said == headings and text.count("\nlayers\n") == 3, text
    weights = tmp_path / "m" / "2" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    code, said, text = check_all(tmp_path, "m")
    assert code == 1 and said == headings, text
    after = text.split(headings[1] + "\n")[1]  # the reason is below its heading
    assert after.startswith("voxeld check m 2: ") and "m/2/weights.safetensors" in after
    assert text.count("voxeld check") == 1 and text.count("\nlayers\n") == 2, text
    assert check_all(tmp_path, "m", "1")[:2] == (0, [])
    code, said, text = check_all(tmp_path, "m", "2")
    assert code == 1 and not said and text.startswith("voxeld check m: "), text


def test_a_check_of_one_version_reads_it_whatever_its_number(tmp_path):
    ConvModel().write(tmp_path, "m", 2)
    code, said, text = check_all(tmp_path, "m")
    assert code == 0 and said == ["version 2, the only one"], text


def test_a_check_leaves_the_terminal_alone(tmp_path):
    model = ConvModel()
    model.network["description"] = "a\x1b[31mb\x9bc\x7f é"
    model.write(tmp_path, "m")
    code, _, text = check_all(tmp_path, "m")
    assert code == 0 and "a?[31mb??c? é" in text
    model.network["layers"][1]["input"] = "x\x1by"
    model.write(tmp_path, "m")
    code, _, text = check_all(tmp_path, "m")
    assert code == 1 and 'unknown input "x?y"' in text, text


def health(address):
    done = subprocess.run([os.environ["VOXELD"], "health", "--http", address],
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout


def test_health_says_why_not_and_who_is_no_status_page(tmp_path):
    repository = tmp_path / "repository"
    for name in ("good", "normals"):
        ConvModel().write(repository, name)
    (repository / "normals" / "network.json").write_text("{}")
    with Daemon(repository, tmp_path, wait_ready=False) as daemon:
        daemon.wait_said("MODEL_FAILED")
        daemon.wait_said("MODEL_READY")
        code, text = health(daemon.http)
        assert code == 1
        assert f"{daemon.http}: not ready: model 'normals' version 1 cannot be served: " in text
        code, text = health(daemon.grpc)
        assert code == 1 and "does not speak HTTP/1" in text and "may be the gRPC port" in text
    assert health(daemon.http) == (1, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_file_that_the_daemon_may_not_read_names_both_users():
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder)
        repository.chmod(0o755)
        ConvModel().write(repository)
        for path in repository.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        (repository / "conv" / "1" / "weights.safetensors").chmod(0o600)
        program = repository / "voxeld"  # the other user may have no access to the build folder
        program.write_bytes(pathlib.Path(os.environ["VOXELD"]).read_bytes())
        program.chmod(0o755)
        def stranger(*words):
            done = subprocess.run(["setpriv", "--reuid", STRANGER, "--clear-groups", str(program),
                                   *words], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode, done.stdout
            return done.stdout + done.stderr
        model = repository / "conv"
        assert ("weights.safetensors: cannot be opened: Permission denied: it belongs to user 0 "
                f"and has mode 0600, and voxeld runs as user {STRANGER}: chmod a+r it"
                ) in stranger("check", str(model))
        (model / "1").chmod(0o700)  # no advice about what the user cannot see
        assert stranger("check", str(model)).endswith(
            f"voxeld runs as user {STRANGER}, which may not enter one of the directories above "
            "it\n")
        # No advice to open a directory of another user: that would not be enough, either.
        said = stranger("serve", "--repository", folder, "--ready-file", f"{model}/1/ready")
        assert (f"cannot be written: Permission denied: voxeld runs as user {STRANGER}; expected a "
                "path in a directory that voxeld may write to") in said and "chmod" not in said
