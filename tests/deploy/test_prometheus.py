# SPDX-License-Identifier: Apache-2.0
"""The alerts, and the dashboard: promtool takes them, their metrics are voxeld's, and each query
has an answer from a real Prometheus that scrapes a loaded daemon."""

import contextlib
import functools
import json
import math
import re
import threading

import pytest
import yaml

from deployed import DEPLOY, KUBERNETES, ROOT, metric_names, metric_types, run, settings, tool
from certificates import Authority
from collector import Collector
from model_files import ConvModel, random_grid
from prometheus_process import DISCOVERED, Prometheus, without_discovery
import voxeld
from voxeld import Client, Tls
from voxeld_process import PATIENCE, Daemon

RULES = DEPLOY / "prometheus" / "voxeld.rules.yml"
CASES = DEPLOY / "prometheus" / "voxeld.test.yml"
GRAFANA = DEPLOY / "grafana"
FIXED = ("prometheus.yml", "compose.yml")
SEVERITIES = {"page", "ticket"}
# NVML has these; the fake GPU of the tests, and AMD's driver, have not.
OF_NVML = {
    "nv_energy_consumption",
    "nv_gpu_power_limit",
    "nv_gpu_power_usage",
    "nv_gpu_utilization",
}
METRIC = re.compile(r"\b(?:voxeld|nv|process)_[a-z_]+")
SELECTOR = re.compile(r"\b(?:voxeld|nv|process)_[a-z_]+(?:\{[^}]*\})?")
SAMPLES = 5


def need(name):
    found = tool(name)
    if not found:
        pytest.skip(f"SKIPPED deploy_prometheus: no {name} (deploy/install-deps gets it)")
    return found


@functools.cache
def alerts():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@functools.cache
def cases():
    """{alert: [labels of the alerts that are expected to fire, for each case]}."""
    out = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for one in case["promql_expr_test"]:
            name = re.fullmatch(r'ALERTS\{alertname="(\w+)",alertstate="firing"\}', one["expr"])[1]
            found = [set(re.findall(r"(\w+)=", s["labels"])) for s in one["exp_samples"]]
            out.setdefault(name, []).append(found)
    return out


def dashboard():
    return json.loads((GRAFANA / "voxeld.json").read_text())


def panels():
    return [one for one in dashboard()["panels"] if one["type"] != "row"]


def queries():
    return [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


# ------- the alerts -------


def test_promtool_takes_the_rules():
    done = run(need("promtool"), "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_and_is_silent_near_it():
    done = run(need("promtool"), "test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(cases()) == set(alerts())
    for name, found in cases().items():
        assert [] in found and any(found), f"{name}: expected a case that fires and a silent one"


def change_labels(fires, _):
    sample = fires["promql_expr_test"][0]["exp_samples"][0]
    sample["labels"] = sample["labels"].replace("page", "ticket")


def change_series(fires, _):
    fires["input_series"][0]["values"] = "1x30"


def change_silence(_, silent):
    silent["input_series"][0]["values"] = "0x30"


@pytest.mark.parametrize("change", [None, change_labels, change_series, change_silence])
def test_promtool_would_find_a_wrong_case(tmp_path, change):
    (tmp_path / RULES.name).write_text(RULES.read_text())
    said = yaml.safe_load(CASES.read_text())
    said["tests"] = [one for one in said["tests"] if one["name"].startswith("VoxeldDown")]
    if change:
        change(*said["tests"])
    (tmp_path / CASES.name).write_text(yaml.safe_dump(said))
    done = run(need("promtool"), "test", "rules", tmp_path / CASES.name)
    assert done.returncode == (1 if change else 0), done.stdout + done.stderr


def test_alerts_say_what_to_do():
    page = (DEPLOY / "prometheus" / "README.md").read_text()
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(alerts())
    for name, rule in alerts().items():
        assert name.startswith("Voxeld") and rule["labels"]["severity"] in SEVERITIES
        assert set(rule["annotations"]) == {"summary", "description", "action"}, name
        assert 'job="voxeld"' in rule["expr"], name


def test_alerts_name_what_is_there():
    """Labels of the alert, events of the log, settings and metrics of voxeld."""
    table = (ROOT / "engine" / "base" / "process" / "log_events.def").read_text()
    events = set(re.findall(r"^VX_ROW\((\w+),", table, re.MULTILINE))
    codes = (ROOT / "engine" / "base" / "status.def").read_text()
    for name, rule in alerts().items():
        text = " ".join(rule["annotations"].values())
        fired = next(found[0] for found in cases()[name] if found)
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= fired, name
        for word in re.findall(r"\b[A-Z]+_[A-Z]+\b", text):
            assert word in events or word in codes or word == "NOT_SERVING", f"{name}: {word}"
        for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", re.sub(r"\{\{.*?\}\}", "", text)):
            assert word in settings() or word in metric_types(), f"{name}: {word}"


# ------- configurations -------


def test_promtool_takes_the_configurations(tmp_path):
    promtool = need("promtool")
    done = run(promtool, "check", "config", *(DEPLOY / "prometheus" / name for name in FIXED))
    assert done.returncode == 0, done.stdout + done.stderr
    said = without_discovery(DEPLOY / "prometheus" / "kubernetes.yml", ["127.0.0.1:1"], {})
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(said))
    done = run(promtool, "check", "config", path)
    assert done.returncode == 0, done.stdout + done.stderr
    said["scrape_configs"][0]["relabel"] = []
    path.write_text(yaml.safe_dump(said))
    assert run(promtool, "check", "config", path).returncode == 1


# ------- the dashboard -------


def test_the_dashboard_is_made_from_its_table():
    done = run(GRAFANA / "dashboard.py", env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin"})
    text = (GRAFANA / "voxeld.json").read_text()
    assert done.stdout == text, done.stderr + "run deploy/grafana/dashboard.py"


def test_the_dashboard_is_whole():
    """Ids are different, panels do not overlap, variables are defined, panels have a unit."""
    board = dashboard()
    ids = [one["id"] for one in board["panels"]]
    assert len(ids) == len(set(ids))
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    names = {one["name"] for one in board["templating"]["list"]}
    assert names == {"datasource", "instance", "model"}
    text = json.dumps(board)
    used = set(re.findall(r"\$\{?([a-z]\w*)", text)) - {"__all"}
    assert used == names
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["targets"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_metrics_of_rules_and_dashboard_are_in_the_table():
    used = {name for rule in alerts().values() for name in METRIC.findall(rule["expr"])}
    used |= {name for _, expr in queries() for name in METRIC.findall(expr)}
    assert used <= metric_names() and len(used) > 70
    assert OF_NVML <= metric_names()


# ------- a real Prometheus -------


def work(daemon, tls, stopped, geometry):
    """Good requests to both models, and wrong ones, until stopped."""
    coords, feats = random_grid(geometry, 300)
    with Client(daemon.grpc, tls=tls) as client:
        while not stopped.is_set():
            client.infer("conv", coords, feats, timeout=PATIENCE)
            client.infer("other", coords, feats, timeout=PATIENCE)
            with contextlib.suppress(voxeld.VoxeldError):
                client.infer("conv", coords, feats[:, :1], timeout=PATIENCE)
            stopped.wait(0.05)


# Series of tokens are there when there is a file of them.
TOKENS = """{"tokens": [{"name": "all", "certificate": "CN=client", "models": ["*"],
                         "methods": ["infer", "read", "load", "settings", "memory", "admin"]}]}
"""


def certificates(folder):
    """(flags, client's Tls) of mutual TLS with a list of revoked certificates: its series are
    there when it is set."""
    if not tool("openssl"):
        pytest.skip("SKIPPED deploy_prometheus: no openssl, which makes the certificates")
    authority = Authority(folder / "authority")
    server, client = authority.sign("server"), authority.sign("client")
    flags = ["--tls-cert", server.cert, "--tls-key", server.key, "--tls-client-ca", authority.cert]
    flags += ["--tls-client-crl", authority.crl(folder / "revoked.pem")]
    return [str(one) for one in flags], Tls(authority.cert, client.cert, client.key)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """(daemon, Prometheus): a daemon with a CPU and a fake GPU, with mutual TLS, tokens and spans,
    under load, scraped some times."""
    program = need("prometheus")
    folder = tmp_path_factory.mktemp("scraped")
    for name in ("conv", "other"):
        model = ConvModel()
        model.network["limits"]["voxels_max"] = 2000
        model.network["warmup"] = [10]
        model.write(folder / "models", name)
    flags = ["--device", "cpu,fake:0", "--threads", "1", "--device-bytes", "256M"]
    flags += ["--kernel-cache", str(folder / "kernels"), "--client-shm", "unix"]
    tokens = folder / "tokens.json"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    flags += ["--tokens", str(tokens)]
    more, tls = certificates(folder)
    config = DEPLOY / "prometheus" / "kubernetes.yml"
    stopped = threading.Event()
    with contextlib.ExitStack() as stack:
        collector = stack.enter_context(Collector())
        flags += [*more, "--otlp-endpoint", collector.url]
        daemon = stack.enter_context(Daemon(folder / "models", folder, *flags))
        threads = [threading.Thread(target=work, args=(daemon, tls, stopped, i)) for i in (1, 2)]
        for thread in threads:
            thread.start()
        try:
            said = without_discovery(config, [daemon.http], DISCOVERED)
            with Prometheus(program, said, folder) as prometheus:
                prometheus.wait_for(
                    f"{SAMPLES} scrapes",
                    lambda: any(
                        value >= SAMPLES
                        for _, value in prometheus.query("count_over_time(voxeld_ready[5m])")
                    ),
                )
                # At the time of a scrape: after one that is late, every series has a gap.
                times = prometheus.query("max_over_time(timestamp(voxeld_ready)[5m:1s])")
                prometheus.at = max(value for _, value in times)
                yield daemon, prometheus
        finally:
            stopped.set()
            for thread in threads:
                thread.join(PATIENCE)


def asked(expr):
    """A panel's query as Grafana sends it when all instances and models are chosen."""
    expr = expr.replace("$instance", ".*").replace("$model", ".*")
    return expr.replace("$__rate_interval", "30s")


def test_every_metric_is_in_a_real_scrape(scraped):
    daemon, _ = scraped
    there = {re.match(r"\w+", name)[0] for name in daemon.metrics()}
    used = {name for rule in alerts().values() for name in METRIC.findall(rule["expr"])}
    used |= {name for _, expr in queries() for name in METRIC.findall(expr)}
    assert used - there <= OF_NVML


def test_every_query_of_the_dashboard_has_an_answer(scraped):
    _, prometheus = scraped
    silent = []
    for title, expr in queries():
        found = prometheus.query(asked(expr))
        if any(name in OF_NVML for name in METRIC.findall(expr)):
            assert not found  # else take it from OF_NVML
        elif not any(math.isfinite(value) for _, value in found):
            silent.append(f"{title}: {expr}: {found}")
    assert not silent, "\n".join(silent)


def test_the_variables_find_the_instance_and_the_models(scraped):
    daemon, prometheus = scraped
    found = {
        one["name"]: prometheus.label_values(asked(one["query"]["query"]))
        for one in dashboard()["templating"]["list"]
        if one["type"] == "query"
    }
    assert found == {"instance": [daemon.http], "model": ["conv", "other"]}


def test_the_panels_of_one_model_are_of_one_model(scraped):
    _, prometheus = scraped
    (expr,) = (expr for title, expr in queries() if title == "Requests by model")
    found = prometheus.query(asked(expr.replace("$model", "other")))
    assert [labels["model"] for labels, _ in found] == ["other"]


def test_the_alerts_are_evaluated_and_none_pages(scraped):
    _, prometheus = scraped
    groups = prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == set(alerts())
    for rule in rules:
        assert rule["health"] == "ok", rule
        assert rule["state"] != "firing", rule


def test_what_the_alerts_select_is_there(scraped):
    """A label that voxeld never writes would keep an alert silent for ever."""
    _, prometheus = scraped
    for name, rule in alerts().items():
        for selector in SELECTOR.findall(rule["expr"]):
            assert prometheus.query(selector), f"{name}: {selector}"


def test_the_autoscaler_s_rule_finds_a_pod(scraped):
    """As prometheus-adapter asks, with the labels that the configuration for a cluster makes."""
    _, prometheus = scraped
    (rule,) = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())["rules"]
    assert prometheus.query(rule["seriesQuery"])
    expr = rule["metricsQuery"].replace("<<.Series>>", rule["name"]["as"])
    expr = expr.replace("<<.LabelMatchers>>", 'namespace="inference",pod=~"voxeld-0"')
    ((labels, value),) = prometheus.query(expr.replace("<<.GroupBy>>", "pod"))
    assert labels == {"pod": "voxeld-0"} and value >= 0
