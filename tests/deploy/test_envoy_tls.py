# SPDX-License-Identifier: Apache-2.0
"""deploy/envoy/envoy-tls.yaml with a real Envoy: clients speak TLS to it, and it alone may speak to
two real replicas, by mutual TLS."""

import contextlib
import re

import pytest
import yaml

from balancer_cases import kill, leave_and_return, stay, terminate
from balancer_load import MODEL, Load, answered
from balancer_tls import NOT_OURS, admits_only, put, refused, replica, shown, trust
from certificates import Authority
from deployed import DEPLOY
from envoy_process import CONFIG, CONFIG_TLS, FILES, SECRETS, Envoy, need, read, validate
from voxeld import Client, Tls
from voxeld_process import PATIENCE

pytest_plugins = ["balancer_fixtures"]
README = DEPLOY / "haproxy" / "README.md"


@pytest.fixture(scope="module")
def program():
    return need()


@pytest.fixture
def files(files):
    """With the two of the tree that name them."""
    for one in SECRETS.iterdir():
        (files / one.name).write_text(one.read_text().replace(FILES, str(files)))
    return files


@pytest.fixture
def replicas(repository, signed, tmp_path, trusted):
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(replica(repository, tmp_path, name, signed.voxeld, trusted))
            for name in "ab"
        ]


@pytest.fixture
def proxy(program, replicas, files, tls, tmp_path):
    with Envoy(program, tmp_path, replicas, read(CONFIG_TLS, files), tls) as one:
        yield one


# ------- the file -------


def test_envoy_takes_the_file(program, files, tmp_path):
    path = tmp_path / "envoy.yaml"
    path.write_text(yaml.safe_dump(read(CONFIG_TLS, files)))
    code, said = validate(program, path)
    assert code == 0, said
    assert "eprecated" not in said, said


def test_all_but_tls_is_that_of_the_plain_file():
    said = read(CONFIG_TLS)
    said.pop("node")
    (listener,), (cluster,) = (said["static_resources"][key] for key in ("listeners", "clusters"))
    for one in (listener["filter_chains"][0], cluster):
        assert one.pop("transport_socket")["name"] == "envoy.transport_sockets.tls"
    assert said == read(CONFIG)


def test_the_readme_lists_the_files():
    page = README.read_text().split("## Envoy with TLS")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    said = CONFIG_TLS.read_text() + page + "".join(one.read_text() for one in SECRETS.iterdir())
    used = re.findall(FILES + r"/([\w-]+\.\w+)", said)
    assert sorted(re.findall(r"`(.+?)`", " ".join(rows))) == sorted(set(used))


# ------- who is let in -------


def test_every_geometry_stays_on_one_replica(proxy, replicas, grids):
    stay(proxy, replicas, grids)


def test_clients_without_trust_or_tls_are_refused(proxy, signed):
    refused(proxy.grpc, None)
    refused(proxy.grpc, Tls(ca=signed.stranger.cert, name="localhost"))
    refused(proxy.grpc, Tls(ca=signed.public.cert, name="elsewhere"))


def test_nobody_reaches_a_replica_but_envoy(proxy, replicas, signed):
    admits_only(proxy, replicas[0], signed)


@pytest.mark.parametrize("wrong", NOT_OURS)
def test_a_replica_that_is_not_ours_gets_no_call(
    program, repository, signed, files, trusted, tls, grids, tmp_path, wrong
):
    with replica(repository, tmp_path, "a", signed.voxeld, trusted) as ours:
        with replica(repository, tmp_path, "b", signed.not_ours(wrong), trusted) as other:
            said = read(CONFIG_TLS, files)
            with Envoy(program, tmp_path, [ours, other], said, tls, up=["a"]) as proxy:
                # A failed handshake of a health check, and what it was.
                name = "cluster.voxeld.ssl.fail_verify_"
                name += {"another authority": "error", "another name": "san"}[wrong]
                proxy.wait_for(name, lambda: proxy.counter(name) > 0)
                with Client(proxy.grpc, tls=tls) as client:
                    for grid in grids:
                        client.infer(MODEL, *grid, timeout=PATIENCE)
                assert [answered(ours), answered(other)] == [len(grids), 0]
                assert proxy.healthy() == {"a": True, "b": False}


def only_clients_of(said):
    """The lines of the README that make Envoy ask clients for a certificate, put where it says."""
    after = README.read_text().split("`require_client_certificate`", 1)[1]
    lines = yaml.safe_load(re.search(r"```yaml\n(.*?)```", after, re.DOTALL)[1])
    chain = said["static_resources"]["listeners"][0]["filter_chains"][0]
    context = chain["transport_socket"]["typed_config"]
    context["common_tls_context"].update(lines.pop("common_tls_context"))
    context.update(lines)
    return said


def test_clients_with_certificates(program, replicas, signed, files, tmp_path, grids):
    person, stranger = signed.people.sign("person"), signed.stranger.sign("person")
    old = signed.people.sign("old", expired=True)
    said = only_clients_of(yaml.safe_load(CONFIG_TLS.read_text()))
    said = yaml.safe_load(yaml.safe_dump(said).replace(FILES, str(files)))
    with Envoy(program, tmp_path, replicas, said, signed.trusting(person)) as proxy:
        stay(proxy, replicas, grids)
        refused(proxy.grpc, signed.trusting(stranger))
        refused(proxy.grpc, signed.trusting(old))
        refused(proxy.grpc, signed.trusting())


# ------- replicas and certificates that change under load -------


@pytest.mark.parametrize("how", [terminate, kill])
def test_a_replica_leaves_and_comes_back_under_load(proxy, replicas, grids, how):
    leave_and_return(proxy, replicas, grids, how)


def test_renewed_certificates_are_used_and_no_call_fails(
    proxy, replicas, files, signed, grids, trusted, tmp_path
):
    """Both of Envoy's.  Its own is then of an authority that replicas alone trust from then on, so
    that they come back to it only with the new one."""
    where = (proxy.grpc, signed.public.cert)
    first = shown(*where)
    fresh = Authority(tmp_path / "fresh", "fresh")
    with Load(proxy, grids) as load:
        load.wait_progress()
        put(files, "server", signed.public.sign("service", "DNS:localhost"))
        proxy.wait_for("the new certificate", lambda: shown(*where) != first)
        load.wait_progress()
        trust(replicas, trusted, signed.inside, fresh)
        put(files, "proxy", fresh.sign("envoy", "DNS:renewed"))
        proxy.wait_for("Envoy to read its own", lambda: '"renewed"' in proxy.ask("/certs"))
        load.wait_progress()
        trust(replicas, trusted, fresh)
        load.wait_progress()
    assert not load.errors, load.errors
    leave_and_return(proxy, replicas, grids, terminate)
