# SPDX-License-Identifier: Apache-2.0
"""deploy/haproxy/haproxy-tls.cfg with a real HAProxy: clients speak TLS to it, and it alone may
speak to two real replicas, by mutual TLS."""

import contextlib
import pathlib
import re
import shutil
import signal
import socket
import ssl
import sys

import pytest

from balancer_cases import kill, leave_and_return, reach_both, stay, terminate
from balancer_load import MODEL, Load, answered, homes
from balancer_tls import (NOT_OURS, admits_only, handshakes, join, put, refused, replica, shown,
                          swap, trust)
from certificates import Authority, Pair
from deployed import DEPLOY, run
from haproxy_process import ADMIN, CONFIG, CONFIG_TLS, FILES, HAProxy, drain, need
from voxeld import Client, Tls
from voxeld_process import PATIENCE

pytest_plugins = ["balancer_fixtures"]
README = DEPLOY / "haproxy" / "README.md"
CHOICES = ("none", "optional", "required")


@pytest.fixture(scope="module")
def program():
    return need()


@pytest.fixture
def own(signed, tmp_path):
    """Each replica's own certificate, under a path that stays."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name in "ab":
        put(folder, name, signed.voxeld)
    return folder


def pair_of(folder, name):
    """Of files that put() wrote."""
    return Pair(folder / f"{name}.crt", folder / f"{name}.key")


@pytest.fixture
def replicas(repository, own, tmp_path, trusted):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(replica(repository, tmp_path, name, pair_of(own, name), trusted))
            for name in "ab"
        ]


def started(program, folder, replicas, files, tls, **options):
    """An HAProxy of the tree's file; VOXELD_CLIENTS=... and so on among the options."""
    where = dict(zip(("VOXELD_A", "VOXELD_B"), (one.grpc for one in replicas)))
    return HAProxy(program, folder, CONFIG_TLS, tls=tls, VOXELD_TLS=str(files), **where, **options)


@pytest.fixture
def proxy(program, replicas, files, tls, tmp_path):
    with started(program, tmp_path, replicas, files, tls) as one:
        yield one


# ------- the file -------


@pytest.mark.parametrize("clients", [*CHOICES, "", "requred"])
def test_haproxy_takes_the_file(program, files, clients):
    """And no other word for what is asked of clients."""
    environment = {"VOXELD_TLS": str(files), "VOXELD_CLIENTS": clients}
    done = run(program, "-c", "-f", CONFIG_TLS, env=environment)
    assert (done.returncode == 0) == (clients in CHOICES), done.stderr
    assert clients not in CHOICES or "WARNING" not in done.stderr, done.stderr


def lines_of(path):
    """Without comments and listeners, and without the choice which of those there are."""
    text = re.sub(r"^\.if (defined|streq)\(.*?^\.endif$", "", path.read_text(), 0, re.M | re.S)
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and not re.match(r"bind |presetenv VOXELD_TLS_", line)]


def test_all_but_tls_is_that_of_the_plain_file():
    plain, said = lines_of(CONFIG), lines_of(CONFIG_TLS)
    assert [line for line in plain if line not in said] == ["tcp-check connect"]
    about = re.compile(r"\bssl\b|ssl-|\.ssl\.|VOXELD_TLS|VOXELD_CLIENTS|timeout client 120s")
    assert [line for line in said if line not in plain and not about.search(line)] == []
    assert [line for line in said if line in plain] == [line for line in plain if line in said]


def section():
    return README.read_text().split("## HAProxy with TLS")[1].split("\n## ")[0]


def test_the_readme_lists_the_files():
    page, said = section(), CONFIG_TLS.read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    used = set(re.findall(r"\$\{VOXELD_TLS\}/([\w-]+\.\w+)", said))
    keys = {name.replace(".crt", ".key") for name in used if not name.endswith("-ca.crt")}
    listed = re.findall(r"`([\w-]+\.(?:crt|key|crl))`", " ".join(rows))
    assert sorted(listed) == sorted(used | keys)
    assert f"presetenv VOXELD_TLS {FILES}\n" in said and FILES in page


# ------- who is let in -------


def test_every_geometry_stays_on_one_replica(proxy, replicas, grids):
    stay(proxy, replicas, grids)


def test_calls_without_the_header_reach_both(proxy, replicas, grids):
    reach_both(proxy, replicas, grids)


def test_clients_without_trust_or_tls_are_refused(proxy, signed):
    refused(proxy.grpc, None)
    refused(proxy.grpc, Tls(ca=signed.stranger.cert, name="localhost"))
    refused(proxy.grpc, Tls(ca=signed.public.cert, name="elsewhere"))


@pytest.mark.parametrize("clients", ["optional", "required"])
def test_clients_with_certificates(program, replicas, signed, files, tmp_path, grids, clients):
    person, stranger = signed.people.sign("person"), signed.stranger.sign("person")
    old = signed.people.sign("old", expired=True)
    trusting = signed.trusting(person)
    with started(program, tmp_path, replicas, files, trusting, VOXELD_CLIENTS=clients) as proxy:
        stay(proxy, replicas, grids)
        refused(proxy.grpc, signed.trusting(stranger))
        refused(proxy.grpc, signed.trusting(old))
        if clients == "required":
            refused(proxy.grpc, signed.trusting())
        else:
            with Client(proxy.grpc, tls=signed.trusting()) as client:
                assert client.model_ready(MODEL)


def test_revoked_certificates_of_clients(program, replicas, signed, files, tmp_path, grids):
    """Those of the list at the start, and those of a later one; an open connection stays."""
    good, first, second = (signed.people.sign(name) for name in ("good", "first", "second"))
    signed.people.revoke(first)
    signed.people.crl(files / "clients-ca.crl")
    with started(program, tmp_path, replicas, files, signed.trusting(good),
                 VOXELD_CLIENTS="required", VOXELD_CLIENTS_REVOKED="crl") as proxy:
        stay(proxy, replicas, grids)
        refused(proxy.grpc, signed.trusting(first))
        with Client(proxy.grpc, tls=signed.trusting(second)) as client:
            assert client.model_ready(MODEL)
            signed.people.revoke(second)
            signed.people.crl(files / "clients-ca.crl")
            assert "Success!" in renew(proxy, files, tmp_path, "clients-ca.crl")
            refused(proxy.grpc, signed.trusting(second))
            assert client.model_ready(MODEL)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed(proxy, signed, version):
    """It would pass by an authority that is trusted no more."""
    context = ssl.create_default_context(cafile=signed.public.cert)
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version
    host, port = proxy.grpc.split(":")
    session = None
    for _ in range(2):
        plain = socket.create_connection((host, int(port)), PATIENCE)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as one:
            assert not one.session_reused
            one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            assert one.recv(1)  # its SETTINGS: what TLS sends of itself came before
            session = one.session


def test_nobody_reaches_a_replica_but_haproxy(proxy, replicas, signed):
    admits_only(proxy, replicas[0], signed)


def test_haproxy_of_another_authority_is_refused(program, replicas, signed, files, tls, tmp_path):
    put(files, "proxy", signed.stranger.sign("proxy", "DNS:proxy"))
    before = [handshakes(one, "bad_certificate") for one in replicas]
    with started(program, tmp_path, replicas, files, tls, up="") as proxy:
        for one, count in zip(replicas, before):
            proxy.wait_down(one.name)
            proxy.wait_for("its count", lambda: handshakes(one, "bad_certificate") > count)
        refused(proxy.grpc, tls)


def checked(proxy, name):
    """What the last health check of a replica found."""
    rows = [line.split(",") for line in proxy.ask("show stat").strip().splitlines()]
    at = rows[0].index("check_status")
    return [row[at].strip("* ") for row in rows if row[:2] == ["voxeld", name]][0]


@pytest.mark.parametrize("wrong", NOT_OURS)
def test_a_replica_that_is_not_ours_gets_no_call(
    program, repository, signed, files, trusted, tls, grids, tmp_path, wrong
):
    with replica(repository, tmp_path, "a", signed.voxeld, trusted) as ours:
        with replica(repository, tmp_path, "b", signed.not_ours(wrong), trusted) as other:
            with started(program, tmp_path, [ours, other], files, tls, up="a") as proxy:
                with Client(proxy.grpc, tls=tls) as client:
                    # Before the first check, and after it.
                    for grid in grids:
                        client.infer(MODEL, *grid, timeout=PATIENCE)
                    assert [answered(ours), answered(other)] == [len(grids), 0]
                    proxy.wait_down("b")
                    for grid in grids:
                        client.infer(MODEL, *grid, timeout=PATIENCE)
                proxy.wait_for("a failed handshake", lambda: checked(proxy, "b") == "L6RSP")
                assert [answered(ours), answered(other)] == [2 * len(grids), 0]


# ------- replicas and certificates that change under load -------


@pytest.mark.parametrize("how", [drain, terminate, kill])
def test_a_replica_leaves_and_comes_back_under_load(proxy, replicas, grids, how):
    leave_and_return(proxy, replicas, grids, how)


SOCAT = """#!{python}
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[2])
one.sendall(sys.stdin.buffer.read())
one.shutdown(socket.SHUT_WR)
while part := one.recv(65536):
    sys.stdout.buffer.write(part)
"""


def renew(proxy, files, folder, name):
    """What the README says of that file, in a shell; the answer of HAProxy."""
    text = re.search(r"```sh\n(renew\(\).*?)```", section(), re.DOTALL)[1]
    function, calls = text.split("\n}\n")
    (call,) = [line for line in calls.splitlines() if f"/{name}" in line.split()[2]]
    text = f"{function}\n}}\n{call}"
    for here, there in ((FILES, files), (ADMIN, proxy.admin)):
        assert here in text
        text = text.replace(here, str(there))
    program = folder / "bin" / "socat"
    program.parent.mkdir(exist_ok=True)
    program.write_text(SOCAT.format(python=sys.executable))
    program.chmod(0o755)
    done = run("bash", "-ec", f"PATH={program.parent}:$PATH\n{text}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_renewed_certificates_are_used_and_no_call_fails(
    proxy, replicas, files, signed, grids, trusted, tmp_path
):
    """Both of HAProxy's.  Its own is then of an authority that replicas alone trust from then on,
    so that they come back to it only with the new one."""
    first = shown(proxy.grpc, signed.public.cert)
    fresh = Authority(tmp_path / "fresh", "fresh")
    with Load(proxy, grids) as load:
        load.wait_progress()
        put(files, "server", signed.public.sign("service", "DNS:localhost"))
        assert "Success!" in renew(proxy, files, tmp_path, "server.crt")
        assert shown(proxy.grpc, signed.public.cert) != first
        load.wait_progress()
        trust(replicas, trusted, signed.inside, fresh)
        put(files, "proxy", fresh.sign("proxy", "DNS:renewed"))
        assert "Success!" in renew(proxy, files, tmp_path, "proxy.crt")
        load.wait_progress()
        trust(replicas, trusted, fresh)
        load.wait_progress()
    assert not load.errors, load.errors
    leave_and_return(proxy, replicas, grids, drain)


def test_files_that_cannot_be_used_change_nothing(proxy, files, signed, tmp_path):
    """A key of another certificate, and a file that is cut."""
    first = shown(proxy.grpc, signed.public.cert)
    other = signed.public.sign("service", "DNS:localhost")
    swap(files / "server.key", other.key)
    assert "Success!" not in renew(proxy, files, tmp_path, "server.crt")
    text = other.cert.read_text()
    (files / "server.crt").write_text(text[: len(text) // 2])
    assert "Success!" not in renew(proxy, files, tmp_path, "server.crt")
    assert shown(proxy.grpc, signed.public.cert) == first
    swap(files / "server.crt", other.cert)
    assert "Success!" in renew(proxy, files, tmp_path, "server.crt")
    assert shown(proxy.grpc, signed.public.cert) != first


def test_another_authority_of_clients(program, replicas, files, signed, tmp_path):
    """From then on its certificates alone are admitted."""
    old, new = (signed.trusting(one.sign("person")) for one in (signed.people, signed.stranger))
    with started(program, tmp_path, replicas, files, old, VOXELD_CLIENTS="required") as proxy:
        with Client(proxy.grpc, tls=old) as client:
            assert client.model_ready(MODEL)
            refused(proxy.grpc, new)
            join(files / "clients-ca.crt", signed.stranger)
            assert "Success!" in renew(proxy, files, tmp_path, "clients-ca.crt")
            refused(proxy.grpc, old)
            with Client(proxy.grpc, tls=new) as other:
                assert other.model_ready(MODEL)
            assert client.model_ready(MODEL)  # a connection that was open stays


def renew_replica(one, own, pair, trusted, signed, how="a changed file"):
    where = (one.grpc, trusted, "voxeld", signed.proxy)
    before = shown(*where)
    put(own, one.name, pair)
    if how == "SIGHUP":
        one.signal(signal.SIGHUP)
    one.daemon.wait_for("the new certificate", lambda: shown(*where) != before)


@pytest.mark.parametrize("how", ["SIGHUP", "a changed file"])
def test_a_replica_renews_its_certificate_and_no_call_fails(
    proxy, replicas, own, signed, grids, how
):
    """HAProxy has to do nothing: the authority is the same."""
    with Load(proxy, grids) as load:
        load.wait_progress()
        for one in replicas:
            pair = signed.inside.sign("replica", "DNS:voxeld")
            renew_replica(one, own, pair, signed.inside.cert, signed, how)
            load.wait_progress()
    assert not load.errors, load.errors
    homes(proxy, replicas, grids)  # over new connections, and so with the new certificates


def test_replicas_change_their_authority_and_no_call_fails(
    proxy, replicas, own, files, signed, grids, tmp_path
):
    """Whom HAProxy trusts: both, then the new one alone."""
    fresh = Authority(tmp_path / "fresh", "fresh")
    trusts = files / "voxeld-ca.crt"
    with Load(proxy, grids) as load:
        load.wait_progress()
        join(trusts, signed.inside, fresh)
        assert "Success!" in renew(proxy, files, tmp_path, "voxeld-ca.crt")
        both = pathlib.Path(shutil.copy(trusts, tmp_path / "both.pem"))
        for one in replicas:
            renew_replica(one, own, fresh.sign("replica", "DNS:voxeld"), both, signed)
        load.wait_progress()
        join(trusts, fresh)
        assert "Success!" in renew(proxy, files, tmp_path, "voxeld-ca.crt")
        load.wait_progress()
    assert not load.errors, load.errors
    leave_and_return(proxy, replicas, grids, drain)
    # The old one is trusted no more: a replica that comes back with it is not used.
    put(own, "a", signed.voxeld)
    replicas[0].signal(signal.SIGKILL)
    replicas[0].end()
    proxy.wait_down("a")
    replicas[0].start()
    proxy.wait_for("a refused handshake", lambda: checked(proxy, "a") == "L6RSP")


def test_a_reload_reads_the_files_and_no_call_fails(
    program, replicas, files, signed, grids, tls, tmp_path
):
    with started(program, tmp_path, replicas, files, tls, master=True) as proxy:
        where = (proxy.grpc, signed.public.cert)
        first, before = shown(*where), homes(proxy, replicas, grids)
        with Load(proxy, grids) as load:
            load.wait_progress()
            put(files, "server", signed.public.sign("service", "DNS:localhost"))
            proxy.reload()
            proxy.wait_for("the new certificate", lambda: shown(*where) != first)
            load.wait_progress()
            # Files that it cannot use: the process that serves goes on.
            worker = proxy.worker()
            swap(files / "server.key", signed.server.key)
            proxy.process.send_signal(signal.SIGUSR2)
            proxy.wait_for("an error", lambda: "[ALERT]" in proxy.log_path.read_text())
            load.wait_progress()
            assert proxy.worker() == worker
        assert not load.errors, load.errors
        assert homes(proxy, replicas, grids) == before
