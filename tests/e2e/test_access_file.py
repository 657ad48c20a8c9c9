# SPDX-License-Identifier: Apache-2.0
"""The file of tokens: at the start, while it changes, and the tool that makes its entries; and how
each client of ours, and the stock one, sends a token."""
import asyncio
import hashlib
import json
import os
import queue
import resource
import signal
import subprocess
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import voxeld
from tritonclient.grpc import service_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from access_rig import CODE, GROUPS, Asker, Tokens, request_of
from model_files import ConvModel, random_grid
from triton_rig import inputs_of, refused
from voxeld_process import PATIENCE, Daemon


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    made = Tokens(tmp_path_factory.mktemp("tokens"))
    return made.add("some", GROUPS, ["conv", "street-*"]).write()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    for name in ("conv", "other"):
        ConvModel().write(path, name)
    return path


@pytest.fixture(scope="module")
def daemon(repository, tokens, tmp_path_factory):
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--tokens",
                str(tokens.path)) as one:
        yield one


# ------- the file while it changes -------

@pytest.mark.races
def test_a_file_that_changes_under_load(repository, tmp_path):
    tokens = Tokens(tmp_path).add("a").add("b").write()
    with Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon:
        over, failures, done = threading.Event(), [], [0] * 3

        def run(i):
            with Asker(daemon.grpc, tokens) as own:
                while not over.is_set():
                    code, answer = own.infer("a", voxels=20)
                    done[i] += 1
                    if code is not CODE.OK:
                        failures.append(answer)
        threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for round in range(6):
            before = list(done)
            tokens.add(f"more-{round}").write()
            if round % 2:
                daemon.signal(signal.SIGHUP)
            daemon.wait_said(f" TOKENS process=front entries={3 + round} ")
            daemon.wait_for("requests after the change",
                            lambda: all(d > b for d, b in zip(done, before)))
        wrong = tmp_path / "wrong"  # changes nothing, and is reported once
        wrong.write_text("{")
        wrong.rename(tokens.path)
        daemon.wait_said("TOKENS_FAILED")
        assert daemon.metrics()["voxeld_token_file_good"] == 0
        before = list(done)
        daemon.wait_for("requests", lambda: all(d > b + 5 for d, b in zip(done, before)))
        assert not failures
        with Asker(daemon.grpc, tokens) as own:
            feed = threading.Event()
            answered = threading.Event()

            def requests():
                yield request_of("conv", 20)
                feed.wait(PATIENCE)
                yield request_of("conv", 20)
            call = own.inference.ModelStreamInfer(requests(), timeout=PATIENCE,
                                                  metadata=tokens.of("a"))
            assert next(call).error_message == ""
            del tokens.entries["a"]
            tokens.write()
            daemon.wait_for("the token to be refused", lambda: len(failures) >= 3)
            over.set()
            for thread in threads:
                thread.join(PATIENCE)
            assert all(f.startswith("the token is not known here, or no longer")
                       for f in failures)
            feed.set()
            assert "the token is not known here" in next(call).error_message
            call.cancel()
            answered.set()
            assert own.infer("b")[0] is CODE.OK
        assert daemon.log().count("TOKENS_FAILED") == 1
        assert daemon.metrics()["voxeld_token_file_good"] == 1
        assert "tokens.json: line 1, column 2" in daemon.log()


def test_a_link_that_points_elsewhere(repository, tmp_path):
    """As Kubernetes updates a secret: the file's folder is a link that is replaced."""
    tokens = Tokens(tmp_path)
    for i in (1, 2):
        (tmp_path / f"data{i}").mkdir()
    tokens.add("a").write(tmp_path / "data1" / "tokens.json")
    (tmp_path / "now").symlink_to("data1")
    with Daemon(repository, tmp_path, "--tokens", str(tmp_path / "now" / "tokens.json")) as daemon:
        with Asker(daemon.grpc, tokens) as own:
            assert own.infer("a")[0] is CODE.OK
            tokens.entries.clear()
            tokens.add("b").write(tmp_path / "data2" / "tokens.json")
            (tmp_path / "next").symlink_to("data2")
            (tmp_path / "next").rename(tmp_path / "now")
            daemon.wait_said(" TOKENS process=front", 2)
            daemon.wait_for("the new token", lambda: own.infer("b")[0] is CODE.OK)
            assert own.infer("a")[0] is CODE.UNAUTHENTICATED


@pytest.mark.parametrize("text,mode,sentence", [
    ('{"tokens": [\n  {"name": "x"}\n]}', 0o600, "tokens.json: line 2, column 3: expected "),
    ('{"tokens": []}', 0o606, "expected a file of tokens that others may not write, got mode 0606"),
    (None, None, "expected a file of tokens that can be read: No such file"),
])
def test_a_file_that_is_wrong_at_the_start(repository, tmp_path, text, mode, sentence):
    path = tmp_path / "tokens.json"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    run = subprocess.run([os.environ["VOXELD"], "serve", "--repository", str(repository), "--grpc",
                          "127.0.0.1:0", "--http", "127.0.0.1:0", "--tokens", str(path)],
                         capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert "START_FAILED" in last and sentence in last, last


def test_an_entry_for_certificates_that_nobody_is_asked_for(repository, tmp_path):
    tokens = Tokens(tmp_path).add("a")
    tokens.entries["b"] = {"name": "b", "certificate": "CN=r", "models": ["*"], "methods": ["read"]}
    tokens.write()
    with Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon:
        daemon.wait_said("warn TOKENS_CERTIFICATE")
        assert "no client is asked for one without --tls-client-ca" in daemon.log()
        with Asker(daemon.grpc, tokens) as own:
            assert own.infer("a")[0] is CODE.OK


def test_a_file_that_others_may_read(repository, tmp_path):
    tokens = Tokens(tmp_path).add("a").write()
    tokens.path.chmod(0o644)
    with Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon:
        daemon.wait_said("TOKENS_OPEN")
        assert Asker(daemon.grpc, tokens).infer("a")[0] is CODE.OK


def test_settings_without_a_file(tmp_path):
    for flag in ("--token-health", "--token-admin"):
        run = subprocess.run([os.environ["VOXELD"], "serve", "--repository", str(tmp_path), flag],
                             capture_output=True, text=True, timeout=PATIENCE)
        assert run.returncode == 2
        assert f"{flag} has no effect without a file as --tokens" in run.stderr


def test_no_core_dump(repository, tmp_path):
    """A core would have the tokens that gRPC keeps, so not even --core-dumps allows one.  A limit
    of 1 byte holds for cores that go to a program, too, which one of 0 does not."""
    def limits(*flags):
        with Daemon(repository, tmp_path, "--core-dumps", *flags) as daemon:
            return resource.prlimit(daemon.process.pid, resource.RLIMIT_CORE)
    tokens = Tokens(tmp_path).add("a").write()
    here = resource.getrlimit(resource.RLIMIT_CORE)
    assert limits() == here
    assert limits("--tokens", str(tokens.path)) == (here if here[1] == 0 else (1, 1))


def test_health_may_ask(repository, tmp_path):
    tokens = Tokens(tmp_path).add("a", ["read"]).write()
    with Daemon(repository, tmp_path, "--tokens", str(tokens.path), "--token-health") as daemon:
        with Asker(daemon.grpc, tokens) as own:
            for method in ("ServerLive", "ServerReady", "Check"):
                request = (health_pb2.HealthCheckRequest() if method == "Check" else
                           getattr(service_pb2, method + "Request")())
                assert own.ask(method, request, None)[0] is CODE.UNAUTHENTICATED
                assert own.ask(method, request, "a")[0] is CODE.OK
        assert daemon.get("/metrics")[0] == 200  # the admin port does not ask


def test_anyone(repository, tmp_path):
    tokens = Tokens(tmp_path).add("a").add("open", ["infer"], ["conv"], anyone=True)
    del tokens.entries["open"]["sha256"]
    tokens.write()
    with Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon:
        with Asker(daemon.grpc, tokens) as own:
            assert own.infer(None)[0] is CODE.OK
            assert own.infer(None, "other") == (CODE.PERMISSION_DENIED,
                                                "token 'open' does not permit model 'other'")
            assert own.infer("a", "other")[0] is CODE.OK
            assert own.infer("open")[0] is CODE.UNAUTHENTICATED  # that token is in no file


@pytest.mark.races
def test_a_watch_ends_with_its_token(repository, tmp_path):
    """It sends no message that could be refused; a stream of reflection need not."""
    tokens = Tokens(tmp_path).add("a", ["read"]).add("b", ["read"]).write()
    with (Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon,
          Asker(daemon.grpc, tokens) as own):
        more = threading.Event()

        def watch(token, service):
            call = own.health.Watch(health_pb2.HealthCheckRequest(service=service),
                                    timeout=PATIENCE, metadata=tokens.of(token))
            assert next(call).status == health_pb2.HealthCheckResponse.SERVING
            return call

        def questions():
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            more.wait(PATIENCE)

        def end_of(call):
            with pytest.raises(grpc.RpcError):
                next(call)
            return call.code(), call.details()

        kept, server, model = watch("b", "conv"), watch("a", ""), watch("a", "conv")
        reflection = own.reflection.ServerReflectionInfo(questions(), timeout=PATIENCE,
                                                         metadata=tokens.of("a"))
        next(reflection)
        tokens.add("a", ["read"], ["other"]).write()
        assert end_of(model) == (CODE.PERMISSION_DENIED, "token 'a' does not permit model 'conv'")
        assert server.is_active() and reflection.is_active()
        del tokens.entries["a"]
        tokens.write()
        for call in (server, reflection):
            code, text = end_of(call)
            assert code is CODE.UNAUTHENTICATED and "not known here, or no longer" in text
        more.set()
        assert kept.is_active() and watch("b", "conv").cancel() and kept.cancel()


# ------- clients -------

@pytest.mark.release
@pytest.mark.races
def test_a_stream_asks_with_the_token_of_now(repository, tmp_path):
    """It may do what a call may that begins now, and its coords have the names of its token."""
    tokens = Tokens(tmp_path).add("a", ["infer", "read"]).add("b", ["infer"]).write()
    with (Daemon(repository, tmp_path, "--tokens", str(tokens.path)) as daemon,
          Asker(daemon.grpc, tokens) as own):
        asked = queue.Queue()
        stream = own.inference.ModelStreamInfer(iter(asked.get, None), timeout=PATIENCE,
                                                metadata=tokens.of("a"))

        def said(request):
            """The error, "" for none."""
            asked.put(request)
            return next(stream).error_message

        def naming(name):
            request = request_of("conv", 20)
            request.parameters["coords_ref"].string_param = name
            return request
        assert said(naming("")) == ""
        # The tokens exchange their entries, and so their names.
        a, b = tokens.entries["a"], tokens.entries["b"]
        a["sha256"], b["sha256"] = b["sha256"], a["sha256"]
        tokens.write()
        daemon.wait_said(" TOKENS ", 2)
        code, first = own.ask("ModelInfer", naming(""), "b")
        assert code is CODE.OK
        theirs = naming(first.parameters["coords_ref"].string_param)
        del theirs.inputs[0], theirs.raw_input_contents[0]
        assert own.ask("ModelInfer", theirs, "b")[0] is CODE.OK
        assert "not known here" in said(theirs)
        for methods, sentence in ((["read"], "does not permit"), (["infer"], "")):
            b["methods"] = methods
            before = daemon.log().count(" TOKENS ")
            tokens.write()
            daemon.wait_said(" TOKENS ", before + 1)
            for _ in range(3):
                error = said(request_of("conv", 20))
                assert sentence in error and bool(sentence) == bool(error), error
        asked.put(None)


def test_tritonclient(daemon, tokens):
    headers = {"authorization": f"Bearer {tokens.secrets['some']}"}
    coords, feats = random_grid(5, 100)
    with triton.InferenceServerClient(daemon.grpc) as stock:
        assert stock.is_server_live() and stock.is_server_ready()
        result = stock.infer("conv", inputs_of(coords, feats), headers=headers)
        assert result.as_numpy("out").shape == (100, 3)
        assert stock.is_model_ready("conv", headers=headers)
        with refused("UNAUTHENTICATED", "no token came"):
            stock.infer("conv", inputs_of(coords, feats))
        with refused("PERMISSION_DENIED", "does not permit model 'other'"):
            stock.infer("other", inputs_of(coords, feats), headers=headers)


@pytest.mark.release
def test_python_client(daemon, tokens):
    coords, feats = random_grid(6, 40)

    async def run():
        async with voxeld.AsyncClient(daemon.grpc, token=tokens.secrets["some"]) as client:
            answer = await client.infer("conv", coords, feats, metadata=(("x-more", "1"),))
            with pytest.raises(voxeld.PermissionDenied):
                await client.infer("other", coords, feats)
            return answer["out"].shape
    assert asyncio.run(run()) == (40, 3)
    for token, said in (
            ("", "expected 1 to 256 characters, got 0"),
            ("x" * 257, "expected 1 to 256 characters, got 257"),
            ("a b", "- . _ ~ + / =, got ' ' at 1"),
            ("schl\u00fcssel", "- . _ ~ + / =, got '\u00fc' at 4"),
            ("token\n", "- . _ ~ + / =, got '\\n' at 5: token.strip() takes it away"),
            ("token\r\n", "- . _ ~ + / =, got '\\r' at 5: token.strip() takes it away")):
        with pytest.raises(ValueError) as caught:
            voxeld.Client(daemon.grpc, token=token)
        assert str(caught.value).endswith(said)
        assert not token or token not in str(caught.value)
    with pytest.raises(TypeError):
        voxeld.Client(daemon.grpc, token=b"bytes")
    with pytest.warns(UserWarning, match="in plain text"):
        voxeld.Client("inference.example:8001", token="x" * 43).close()


def voxel(*arguments, token=None):
    environment = {k: v for k, v in os.environ.items() if k != "VOXEL_TOKEN"}
    if token is not None:
        environment["VOXEL_TOKEN"] = token
    return subprocess.run([os.environ["VOXEL"], *map(str, arguments)], env=environment,
                          capture_output=True, text=True, timeout=PATIENCE)


def test_command_line(daemon, tokens, tmp_path):
    secret = tokens.secrets["some"]
    file = tmp_path / "token"
    file.write_text(f"  {secret}\n")
    grid = tmp_path / "grid.npz"
    coords, feats = random_grid(7, 30)
    np.savez(grid, coords=coords, feats=feats)
    server = ("--server", daemon.grpc)
    commands = (("models",), ("status",), ("infer", "--model", "conv", grid, "--feats", "feats"),
                ("bench", "--model", "conv", "--requests", "2", "--voxels", "20"),
                ("perf-data", "--model", "conv", "--voxels", "20", "-o", tmp_path / "data.json"))
    for command, *rest in commands:
        for run in (voxel(command, *server, *rest, "--token-file", file),
                    voxel(command, *server, *rest, token=secret)):
            assert run.returncode == 0, run.stderr
            assert "plain text" not in run.stderr and secret not in run.stdout + run.stderr
        run = voxel(command, *server, *rest)
        assert run.returncode == 1 and "UNAUTHENTICATED: no token came" in run.stderr
    assert "other" not in voxel("models", *server, token=secret).stdout
    # The file counts more than the environment; an empty variable is none.
    assert voxel("models", *server, "--token-file", file, token="x" * 43).returncode == 0
    assert "no token came" in voxel("models", *server, token="").stderr
    # 0.0.0.0 is this host, but not by its name.
    port = daemon.grpc.rpartition(":")[2]
    run = voxel("models", "--server", f"0.0.0.0:{port}", token=secret)
    assert run.stderr.count("in plain text") == 1 and secret not in run.stderr


@pytest.mark.release
def test_command_line_mistakes(tmp_path):
    file = tmp_path / "token"
    for text, sentence in ((None, "No such file"), ("", "it is empty"), (" \n", "it is empty"),
                           ("two words", "more than one word"), ("x" * 400, "more than one word")):
        if text is not None:
            file.write_text(text)
        run = voxel("models", "--token-file", file)
        assert run.returncode == 2 and sentence in run.stderr, run.stderr
        assert not text or text not in run.stderr
    run = voxel("models", token="not\u00e4token")
    assert run.returncode == 2 and "expected a token of letters" in run.stderr


def test_the_tool(tokens, tmp_path):
    def tool(*arguments):
        return subprocess.run([os.environ["VOXELD"], "token", *map(str, arguments)],
                              capture_output=True, text=True, timeout=PATIENCE)
    made = [tool("new", "cameras") for _ in range(2)]
    assert made[0].stdout != made[1].stdout
    token, entry = made[0].stdout.rstrip("\n"), json.loads(made[0].stderr)
    assert len(token) == 43 and token not in made[0].stderr
    assert entry["sha256"] == hashlib.sha256(token.encode()).hexdigest()
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": [entry]}))
    path.chmod(0o600)
    run = tool("check", path)
    assert (run.returncode, run.stdout) == (
        0, "cameras\n  models  *\n  methods infer read\n"), run.stderr
    assert "models  conv street-*" in tool("check", tokens.path).stdout
    path.write_text(json.dumps({"tokens": [dict(entry, sha256=token)]}))
    run = tool("check", path)
    assert run.returncode == 1 and "line 1, column" in run.stderr and token not in run.stderr
    for arguments in ((), ("new",), ("new", "a b"), ("new", "x" * 48), ("check",), ("old", "x")):
        run = tool(*arguments)
        assert run.returncode == 2 and "expected" in run.stderr and not run.stdout
    help = tool("--help")
    assert help.returncode == 0
    example = help.stdout[help.stdout.index('  {"tokens"'):help.stdout.index("\nmodels ")]
    path.write_text(example.replace("64 hexadecimal digits", "ab" * 32))
    run = tool("check", path)
    assert run.returncode == 0, run.stderr
    assert "requests 100 per second, after a pause 200 at once or one request of any size" \
        in run.stdout
    assert "expires 2027-01-31T00:00:00Z" in run.stdout
