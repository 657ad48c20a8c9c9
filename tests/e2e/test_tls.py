# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS: who is let in, who is not, and what a renewed certificate changes."""
import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc

import voxeld
from certificates import Authority
from model_files import ConvModel, random_grid
from voxeld import AsyncClient, Client, Tls
from voxeld_process import PATIENCE, Daemon

LIVE = "/inference.GRPCInferenceService/ServerLive"
VOXEL = os.environ["VOXEL"]


def serve(pair, *more):
    return ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), *map(str, more))


def swap(path, by):
    """Replaces a file at once, as those that renew certificates do."""
    made = pathlib.Path(f"{path}.new")
    shutil.copy(by, made)
    made.rename(path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca") / "theirs", "a stranger")


@pytest.fixture(scope="module")
def server_pair(authority):
    return authority.sign("the server")


@pytest.fixture(scope="module")
def secure(repository, tmp_path_factory, server_pair):
    """TLS, without certificates of clients."""
    work = tmp_path_factory.mktemp("secure")
    with Daemon(repository, work, "--grpc", f"127.0.0.1:0,unix:{work}/s", "--message-bytes-max",
                "64M", *serve(server_pair)) as one:
        one.socket = f"unix:{work}/s"
        yield one


@pytest.fixture(scope="module")
def mutual(repository, tmp_path_factory, authority, server_pair):
    """A certificate of `authority` is asked for, and its list of revoked ones is read."""
    work = tmp_path_factory.mktemp("mutual")
    crl = authority.crl(work / "crl.pem")
    with Daemon(repository, work, *serve(server_pair, "--tls-client-ca", authority.cert,
                                         "--tls-client-crl", crl)) as one:
        one.crl = crl
        yield one


@pytest.fixture(scope="module")
def trust(authority):
    return Tls(ca=authority.cert)


def handshakes(daemon, result):
    return daemon.metrics()[f'voxeld_tls_handshakes_total{{result="{result}"}}']


@contextlib.contextmanager
def counted(daemon, result):
    """The handshake inside the block ends with that result."""
    before = handshakes(daemon, result)
    yield
    daemon.wait_for(f"a handshake that is {result}",
                    lambda: handshakes(daemon, result) > before)


def refused(address, tls=None):
    """The sentence with which the first call fails."""
    with Client(address, tls=tls) as client:
        with pytest.raises(voxeld.Unavailable) as failure:
            client.server_live(timeout=PATIENCE)
    return str(failure.value)


def live(address, tls):
    with Client(address, tls=tls) as client:
        return client.server_live(timeout=PATIENCE)


# ------- who is let in -------

def test_an_answer_is_the_same_bits_as_over_a_unix_socket(secure, trust):
    coords, feats = random_grid(1, 5000)
    with Client(secure.grpc, tls=trust) as client, Client(secure.socket) as plain:
        out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
        assert np.array_equal(out, plain.infer("conv", coords, feats, timeout=PATIENCE)["out"])


def test_a_plain_client_is_refused(secure):
    with counted(secure, "not_tls"):
        assert "one of the two speaks TLS" in refused(secure.grpc)
    secure.wait_said("expected TLS, got gRPC without TLS")


def test_a_client_that_does_not_trust_us_goes(secure, stranger):
    with counted(secure, "left"):  # gRPC goes without a word
        sentence = refused(secure.grpc, Tls(ca=stranger.cert))
        assert "CERTIFICATE_VERIFY_FAILED" in sentence and "one of the two" not in sentence
    secure.wait_said("it may not trust our certificate")
    with counted(secure, "refused"), pytest.raises(ssl.SSLCertVerificationError):
        connect(secure, context(stranger, ssl.TLSVersion.TLSv1_3))


def test_the_name_must_be_ours(secure, authority):
    refused(secure.grpc, Tls(ca=authority.cert, name="somebody.example"))
    assert live(secure.grpc, Tls(ca=authority.cert, name="localhost"))


def test_a_tls_client_of_a_plain_port_gets_an_error(daemon, trust):
    assert "one of the two speaks TLS" in refused(daemon.grpc, trust)
    assert not any(one.startswith("voxeld_tls") for one in daemon.metrics())


def test_a_client_with_a_certificate_is_served(mutual, authority):
    pair = authority.sign("a robot")
    assert live(mutual.grpc, Tls(ca=authority.cert, cert=pair.cert, key=pair.key))


def test_no_certificate(mutual, trust):
    with counted(mutual, "no_certificate"):
        refused(mutual.grpc, trust)
    mutual.wait_said("expected a client certificate, got none")


@pytest.mark.parametrize("who", ["stranger", "expired", "revoked"])
def test_a_wrong_certificate(mutual, authority, stranger, who):
    pair = stranger.sign("a robot") if who == "stranger" else authority.sign(
        "an old robot", expired=who == "expired")
    tls = Tls(ca=authority.cert, cert=pair.cert, key=pair.key)
    if who == "revoked":
        assert live(mutual.grpc, tls)
        authority.revoke(pair)
        authority.crl(mutual.crl)
        mutual.signal(signal.SIGHUP)
        mutual.wait_said("TLS_CERTIFICATE", 2)
    with counted(mutual, "bad_certificate"):
        refused(mutual.grpc, tls)
    mutual.wait_said({"stranger": "unable to get local issuer certificate",
                      "expired": "certificate has expired",
                      "revoked": "certificate revoked"}[who])


def context(authority, versions, alpn=("h2",)):
    made = ssl.create_default_context(cafile=authority.cert)
    made.minimum_version = made.maximum_version = versions
    made.set_ciphers("ALL:@SECLEVEL=0")
    if alpn:
        made.set_alpn_protocols(list(alpn))
    return made


def connect(daemon, made):
    host, port = daemon.grpc.split(":")
    return made.wrap_socket(socket.create_connection((host, int(port)), PATIENCE),
                            server_hostname="localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(secure, authority, version):
    with connect(secure, context(authority, version)) as one:
        assert one.version() in ("TLSv1.2", "TLSv1.3") and one.selected_alpn_protocol() == "h2"
        one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        assert one.recv(3)[2] > 0 or one.recv(9)  # SETTINGS of the server


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_version_is_refused(secure, authority):
    with counted(secure, "no_agreement"), pytest.raises((ssl.SSLError, ConnectionError)):
        connect(secure, context(authority, ssl.TLSVersion.TLSv1_1))


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
def test_a_client_that_does_not_speak_http2_is_refused(secure, authority, alpn):
    with counted(secure, "no_agreement"):
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            with connect(secure, context(authority, ssl.TLSVersion.TLSv1_3, alpn)) as one:
                one.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert one.recv(1), "the connection is closed"


# ------- clients -------

def test_tritonclient(secure, authority):
    coords, feats = random_grid(2, 1000)
    client = tritonclient.grpc.InferenceServerClient(
        secure.grpc, ssl=True, root_certificates=str(authority.cert))
    inputs = [tritonclient.grpc.InferInput("coords", coords.shape, "INT32"),
              tritonclient.grpc.InferInput("feats", feats.shape, "FP32")]
    inputs[0].set_data_from_numpy(coords)
    inputs[1].set_data_from_numpy(feats)
    assert client.infer("conv", inputs).as_numpy("out").shape == (len(coords), 3)
    client.close()


def test_grpcio_with_a_certificate_of_its_own(mutual, authority):
    pair = authority.sign("grpcio")
    credentials = grpc.ssl_channel_credentials(*(p.read_bytes() for p in (
        authority.cert, pair.key, pair.cert)))
    with grpc.secure_channel(mutual.grpc, credentials) as channel:
        assert channel.unary_unary(LIVE)(b"", timeout=PATIENCE) == b"\x08\x01"


def test_the_asyncio_client(secure, trust):
    async def ask():
        async with AsyncClient(secure.grpc, tls=trust) as client:
            return await client.server_live()
    assert asyncio.run(ask())


def voxel(*arguments):
    return subprocess.run([VOXEL, *map(str, arguments)], capture_output=True, text=True,
                          timeout=PATIENCE)


def test_the_command_line(mutual, authority, tmp_path):
    pair = authority.sign("voxel")
    flags = ("--server", mutual.grpc, "--tls-ca", authority.cert)
    own = ("--tls-cert", pair.cert, "--tls-key", pair.key)
    np.savez(tmp_path / "in.npz", **dict(zip(("coords", "feats"), random_grid(3, 500))))
    done = voxel("infer", "-m", "conv", tmp_path / "in.npz", "-o", tmp_path / "out.npz",
                 *flags, *own)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out.npz")["out"].shape == (500, 3)
    assert voxel("status", *flags, *own).returncode == 0
    assert voxel("models", *flags, *own).stdout.startswith("conv")
    assert voxel("bench", "-m", "conv", "--requests", 5, *flags, *own).returncode == 0
    assert voxel("status", *flags).returncode == 1, "without a certificate"
    assert voxel("status", "--server", mutual.grpc).returncode == 1, "without TLS"
    done = voxel("status", *flags, "--tls-cert", pair.cert)
    assert done.returncode == 2 and "expected both or none" in done.stderr
    done = voxel("status", "--server", mutual.grpc, "--tls-ca", tmp_path / "absent")
    assert done.returncode == 2 and f"{tmp_path}/absent" in done.stderr


# ------- what is sent -------

@pytest.mark.parametrize("voxels", [1, 300, 1000, 40000, 200000])
def test_messages_of_every_size(secure, trust, voxels):
    """The largest has 6.4 MB; each twice, and in threads at once on one connection."""
    coords, feats = random_grid(voxels, voxels)
    outs, failures = [], []

    def ask(client):
        try:
            outs.append(client.infer("conv", coords, feats, timeout=PATIENCE)["out"])
        except voxeld.VoxeldError as error:
            failures.append(error)
    with Client(secure.grpc, tls=trust) as client:
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures and all(np.array_equal(out, outs[0]) for out in outs)


def test_16_megabytes_each_way(repository, tmp_path, server_pair, trust):
    ConvModel(ci=64, hidden=4, co=64).write(repository, "wide")
    with Daemon(repository, tmp_path, "--message-bytes-max", "64M", *serve(server_pair)) as one:
        coords, _ = random_grid(4, 65536)
        feats = np.random.default_rng(1).random((65536, 64), np.float32)
        with Client(one.grpc, tls=trust) as client:
            outs = [client.infer("wide", coords, feats, timeout=PATIENCE)["out"]
                    for _ in range(3)]
        assert outs[0].nbytes == 16 << 20
        assert all(np.array_equal(out, outs[0]) for out in outs)


def test_streams(secure, authority):
    coords, feats = random_grid(5, 800)
    answers, done = [], threading.Event()

    def on_answer(result, error):
        answers.append(error or result.as_numpy("out"))
        if len(answers) == 50:
            done.set()
    client = tritonclient.grpc.InferenceServerClient(
        secure.grpc, ssl=True, root_certificates=str(authority.cert))
    inputs = [tritonclient.grpc.InferInput("coords", coords.shape, "INT32"),
              tritonclient.grpc.InferInput("feats", feats.shape, "FP32")]
    inputs[0].set_data_from_numpy(coords)
    inputs[1].set_data_from_numpy(feats)
    client.start_stream(on_answer)
    for _ in range(50):
        client.async_stream_infer("conv", inputs)
    assert done.wait(PATIENCE)
    client.stop_stream()
    client.close()
    assert all(np.array_equal(one, answers[0]) for one in answers)


def test_calls_that_are_cancelled_leave_nothing(secure, trust):
    coords, feats = random_grid(6, 60000)
    request = voxeld.messages.pack_infer("conv", coords, feats, {}, [])
    with grpc.secure_channel(secure.grpc, trust.credentials()) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(20):
            infer.future(request, timeout=PATIENCE).cancel()
        assert infer(request, timeout=PATIENCE)
    secure.wait_for("no call in flight",
                    lambda: secure.metrics()["voxeld_calls_in_flight"] == 0)


def test_a_client_that_reads_slowly_gets_all_of_it(secure, authority):
    """A small receive buffer: the socket is full for most of the answer."""
    request = voxeld.messages.pack_infer("conv", *random_grid(7, 150000), {}, [])
    options = [("grpc.tcp_read_chunk_size", 1024), ("grpc.http2.lookahead_bytes", 1024),
               ("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
    credentials = grpc.ssl_channel_credentials(authority.cert.read_bytes())
    with grpc.secure_channel(secure.grpc, credentials, options) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        outs = [infer.future(request, timeout=PATIENCE) for _ in range(3)]
        assert len({out.result() for out in outs}) == 1


# ------- renewed -------

class Everybody:
    """Clients that call all the time, each call on a new connection; `failures` has what failed."""

    def __init__(self, address, tls, count=3):
        self.failures, self.done, self.stopped = [], 0, threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(address, tls))
                        for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, address, tls):
        coords, feats = random_grid(8, 300)
        with Client(address, tls=tls) as lasting:
            while not self.stopped.is_set():
                try:
                    with Client(address, tls=tls) as fresh:
                        fresh.infer("conv", coords, feats, timeout=PATIENCE)
                    lasting.infer("conv", coords, feats, timeout=PATIENCE)
                    self.done += 2
                except voxeld.VoxeldError as error:
                    self.failures.append(error)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def shown(daemon):
    """The serial number of the certificate that is served now."""
    host, port = daemon.grpc.split(":")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols(["h2"])
    with made.wrap_socket(socket.create_connection((host, int(port)), PATIENCE)) as one:
        return one.getpeercert(binary_form=True)


@pytest.mark.parametrize("how", ["SIGHUP", "a changed file"])
def test_a_renewed_certificate_is_served_and_no_request_fails(
        repository, tmp_path, authority, trust, how):
    first, second = authority.sign("first"), authority.sign("second")
    for name in ("cert", "key"):
        shutil.copy(getattr(first, name), tmp_path / name)
    with Daemon(repository, tmp_path, "--tls-cert", str(tmp_path / "cert"), "--tls-key",
                str(tmp_path / "key")) as one:
        before = shown(one)
        with Everybody(one.grpc, trust) as clients:
            one.wait_for("answers", lambda: clients.done > 20)
            swap(tmp_path / "key", second.key)
            swap(tmp_path / "cert", second.cert)
            if how == "SIGHUP":
                one.signal(signal.SIGHUP)
            one.wait_for("the new certificate", lambda: shown(one) != before)
            done = clients.done
            one.wait_for("more answers", lambda: clients.done > done + 20)
        assert not clients.failures
        assert one.metrics()['voxeld_tls_reloads_total{result="used"}'] >= 1
        one.wait_said("CN=second")


def test_files_that_cannot_be_used_change_nothing(repository, tmp_path, authority, trust):
    first, second = authority.sign("first"), authority.sign("second")
    for name in ("cert", "key"):
        shutil.copy(getattr(first, name), tmp_path / name)
    with Daemon(repository, tmp_path, "--tls-cert", str(tmp_path / "cert"), "--tls-key",
                str(tmp_path / "key")) as one:
        before = shown(one)
        assert one.metrics()["voxeld_tls_files_good"] == 1
        swap(tmp_path / "cert", second.cert)
        one.wait_said(f"--tls-key {tmp_path}/key: is not the key of the certificate in "
                      f"{tmp_path}/cert")
        assert shown(one) == before and live(one.grpc, trust)
        (tmp_path / "key").unlink()
        one.signal(signal.SIGHUP)
        one.wait_said("No such file or directory")
        assert live(one.grpc, trust)
        assert one.metrics()['voxeld_tls_reloads_total{result="failed"}'] >= 2
        assert one.metrics()["voxeld_tls_files_good"] == 0
        shutil.copy(second.key, tmp_path / "key")
        one.wait_for("the new certificate", lambda: shown(one) != before)
        assert live(one.grpc, trust)
        assert one.metrics()["voxeld_tls_files_good"] == 1
        assert one.log().count("TLS_KEPT") <= 4, "each state of the files is reported once"


# ------- bad settings -------

def start_fails(repository, work, *flags):
    """What the daemon says before it ends, and its exit code."""
    done = subprocess.run(
        [os.environ["VOXELD"], "serve", "--repository", str(repository), "--grpc", "127.0.0.1:0",
         "--http", "127.0.0.1:0", *map(str, flags)], cwd=work, capture_output=True, text=True,
        timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def test_settings_that_need_each_other(repository, tmp_path, server_pair, authority):
    for flags, said in [
            (("--tls-cert", server_pair.cert), "--tls-cert has no effect without"),
            (("--tls-key", server_pair.key), "--tls-key has no effect without"),
            (("--tls-client-ca", authority.cert), "--tls-client-ca has no effect without"),
            ((*serve(server_pair), "--tls-client-crl", authority.cert),
             "--tls-client-crl has no effect without")]:
        code, text = start_fails(repository, tmp_path, *flags)
        assert code == 2 and said in text, (flags, code, text)


@pytest.mark.parametrize("what,said", [
    ("absent", "/absent: cannot be read: No such file or directory"),
    ("folder", "/folder: cannot be read: it is not a file"),
    ("empty", "expected a certificate in PEM, found none"),
    ("key as certificate", "expected a certificate in PEM, found none"),
    ("another key", "is not the key of the certificate in"),
    ("certificate as key", "expected a private key in PEM, found none"),
    ("a key with a password", "expected a private key without a password"),
    ("no authority", "--tls-client-ca"),
    ("no list", "expected lists of revoked certificates (X509 CRL) in PEM, found none"),
])
def test_bad_files_are_named_at_the_start(repository, tmp_path, authority, server_pair, what, said):
    other = authority.sign("another")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkey", "-in", server_pair.key, "-aes128", "-passout", "pass:x1y2",
                    "-out", locked], check=True, capture_output=True)
    cert, key = server_pair.cert, server_pair.key
    flags = {
        "absent": (tmp_path / "absent", key), "folder": (tmp_path / "folder", key),
        "empty": (tmp_path / "empty", key), "key as certificate": (key, key),
        "another key": (cert, other.key), "certificate as key": (cert, cert),
        "a key with a password": (cert, locked),
        "no authority": (cert, key, "--tls-client-ca", tmp_path / "empty"),
        "no list": (cert, key, "--tls-client-ca", authority.cert, "--tls-client-crl",
                    authority.cert),
    }[what]
    code, text = start_fails(repository, tmp_path, "--tls-cert", flags[0], "--tls-key", *flags[1:])
    assert code == 1 and "START_FAILED" in text and said in text, (code, text)
    assert "PRIVATE KEY" not in text


def test_an_expired_certificate_is_served_with_a_warning(repository, tmp_path, authority):
    pair = authority.sign("the old server", expired=True)
    with Daemon(repository, tmp_path, *serve(pair)) as one:
        one.wait_said("TLS_EXPIRED")
        assert one.metrics()['voxeld_tls_expires_seconds{file="tls_cert"}'] == 0
        refused(one.grpc, Tls(ca=authority.cert))


def test_the_key_is_not_in_the_log(secure, server_pair):
    lines = server_pair.key.read_text().splitlines()[1:-1]
    log = secure.log()
    assert not any(line in log for line in lines)
