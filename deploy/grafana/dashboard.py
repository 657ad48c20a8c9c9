#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dashboard - prints the Grafana dashboard of voxeld, from the table in panels.py.

deploy/grafana/dashboard.py >deploy/grafana/voxeld.json
"""

import json

from panels import ROWS, STATS, I

WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number, kind, row, place):
    title, unit, _, about, queries = row
    made = {
        "id": number,
        "type": kind,
        "title": title,
        "description": about,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": DATASOURCE,
                "expr": expr,
                "legendFormat": legend,
            }
            for i, (expr, legend) in enumerate(queries)
        ],
    }
    if kind == "stat":
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"}
    else:
        made["options"] = {
            "tooltip": {"mode": "multi", "sort": "desc"},
            "legend": {"displayMode": "list", "placement": "bottom"},
        }
    return made


def panels():
    made, top, number = [], 0, 1
    for title, row in ROWS:
        kind, height = ("stat", STAT_HEIGHT) if row is STATS else ("timeseries", HEIGHT)
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        made.append(
            {
                "id": number,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": place,
            }
        )
        number, top, left = number + 1, top + 1, 0
        for one in row:
            if left + one[2] > WIDTH:
                left, top = 0, top + height
            made.append(panel(number, kind, one, {"x": left, "y": top, "w": one[2], "h": height}))
            number, left = number + 1, left + one[2]
        top += height
    return made


def variable(name, label, query):
    """A list of a label's values, of which several or all can be chosen."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard():
    return {
        "uid": "voxeld",
        "title": "voxeld",
        "description": "From the /metrics of voxeld.  Made by deploy/grafana/dashboard.py",
        "tags": ["voxeld", "inference"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "15s",
        "timezone": "browser",
        "annotations": {
            "list": [
                {
                    "name": "Starts",
                    "datasource": DATASOURCE,
                    "enable": True,
                    "iconColor": "orange",
                    "expr": f'changes(process_start_time_seconds{{job="voxeld",{I}}}[1m]) > 0',
                    "titleFormat": "{{instance}} has started",
                }
            ]
        },
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {},
                },
                variable("instance", "Instance", "label_values(voxeld_ready, instance)"),
                variable("model", "Model", f"label_values(voxeld_model_ready{{{I}}}, model)"),
            ]
        },
        "panels": panels(),
    }


def text():
    """JSON with one line for each panel, so that a diff shows what changed."""
    whole = dashboard()
    lines = [f'  "{key}": {json.dumps(value)},' for key, value in whole.items() if key != "panels"]
    rows = ",\n".join("    " + json.dumps(one) for one in whole["panels"])
    return "\n".join(["{", *lines, '  "panels": [', rows, "  ]", "}"]) + "\n"


if __name__ == "__main__":
    print(text(), end="")
