#!/bin/bash
# What test_package.py runs inside the booted system, as a unit of it.  It writes a line for each thing that is so
# to /result, "failed: ..." for what is not, and "end" last; then the system stops.
#
# SPDX-License-Identifier: Apache-2.0
exec >/result.log 2>&1
set -uo pipefail
export LC_ALL=C.UTF-8

so() { echo "$1" >>/result; }
show() { systemctl show voxeld -p "$1" --value; }

# expect WHAT COMMAND...: the command succeeds.
expect() {
    local what=$1
    shift
    if "$@"; then so "$what"; else so "failed: $what: $*"; fi
}

# eventually WHAT COMMAND...: it succeeds within two minutes, of which a second is needed.
eventually() {
    local what=$1 i
    shift
    for i in {1..1200}; do
        if "$@"; then
            so "$what"
            return
        fi
        sleep 0.1 # sleep: between two looks
    done
    so "failed: $what: $* (looked $i times)"
}

infer() { voxel infer --model "$1" /cloud.ply --quiet --timeout 100000 -o /tmp/answer.npz; }
is() { [ "$(show "$1")" = "$2" ]; }
status_has() { grep -qE "$1" "/proc/$(show MainPID)/status"; }
served() { voxel models | grep -q "$1"; }
filters_of() { sed -nE 's/^Seccomp_filters:[[:space:]]+//p' "/proc/$1/status"; }
worker_has_more() { [ "$(filters_of "$(pgrep -P "$(show MainPID)")")" -gt "$(filters_of "$(show MainPID)")" ]; }
another_life() { [ "$(show NRestarts)" -gt "$1" ] && is ActiveState active; }

{
    printf 'ply\nformat ascii 1.0\nelement vertex 64\nproperty int x\nproperty int y\nproperty int z\nend_header\n'
    for i in {0..63}; do echo "$((i % 4)) $((i / 4 % 4)) $((i / 16))"; done
} >/cloud.ply

# The service is enabled and the sockets are open: a request starts it, or waits for its start.
expect "a request before the service is up is answered" infer normals
expect "starts by notify" systemctl start voxeld
expect "is active" is ActiveState active
expect "systemd has its status" is StatusText "serves 1 of 1 versions of models"
expect "health is by the other socket" voxeld health
expect "runs as voxeld" status_has "^Uid:[[:space:]]$(id -u voxeld)[[:space:]]"
expect "has no capability" status_has '^CapBnd:[[:space:]]0+$'
expect "gets no privilege" status_has '^NoNewPrivs:[[:space:]]1'
expect "has a filter of system calls" status_has '^Seccomp:[[:space:]]2'
expect "its worker has a filter more" worker_has_more
expect "no warning of its own" bash -c '! journalctl -q -u voxeld -o cat | grep -E "level=(warn|error)|lvl=(W|E)| (warn|error) "'
journalctl -u voxeld -o cat | tail -n 40

cp -r /var/lib/voxeld/models/normals /var/lib/voxeld/models/again
expect "reloads" systemctl reload voxeld
eventually "the new model is served" served again
eventually "and answers when it is warm" infer again

restarts=$(show NRestarts)
kill -STOP "$(show MainPID)"
expect "a request while the loop stands still is answered" infer normals
eventually "the watchdog starts it again" another_life "$restarts"
eventually "by the watchdog" bash -c 'journalctl -q -u voxeld -o cat | grep -q "Watchdog timeout"'

# Clients that ask all the time, and four restarts.
touch /asking
for client in 1 2; do
    while [ -e /asking ]; do
        if infer normals; then echo ok; else echo failed; fi
    done >"/requests.$client" &
done
answered() { [ "$(cat /requests.? | wc -l)" -ge "$1" ]; }
for how in restart restart upgrade restart; do
    count=$(cat /requests.? | wc -l)
    if [ $how = upgrade ]; then
        process=$(show MainPID)
        expect "an upgrade" dpkg -i /voxeld.deb
        expect "restarts it" bash -c "! kill -0 $process"
    else
        expect "a restart" systemctl restart voxeld
    fi
    eventually "requests after it" answered $((count + 4))
done
rm /asking
wait
count=$(cat /requests.? | wc -l)
echo "$count requests across restarts"
expect "no request failed across restarts" bash -c '! grep -q failed /requests.?'

cp /etc/voxeld/voxeld.json /right.json
sed -i 's|^  //"grace_ms": .*|  "grace_ms": "soon",|' /etc/voxeld/voxeld.json
expect "a wrong setting is refused" bash -c '! systemctl restart voxeld'
eventually "with a sentence" bash -c 'journalctl -q -u voxeld -o cat | grep -q "voxeld.json:[0-9]*.*grace_ms"'
eventually "systemd gives up" is SubState failed
systemctl is-active voxeld.socket voxeld-http.socket
cp /right.json /etc/voxeld/voxeld.json
systemctl reset-failed voxeld voxeld.socket voxeld-http.socket
expect "and put right it starts" systemctl restart voxeld.socket voxeld-http.socket voxeld
expect "and answers again" infer normals
systemctl stop voxeld.socket voxeld-http.socket voxeld
expect "stops cleanly" is Result success
so end
systemctl poweroff --no-block
