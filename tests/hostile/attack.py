#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attack - one attacker, or several at once, as a process of its own.

    attack.py --list
    attack.py rapid_reset --server 127.0.0.1:8001 --seconds 4
    attack.py admin_bare_48 --http 127.0.0.1:8002
    attack.py ping trickle_300 --server unix:/run/voxeld/grpc

Attacks until its time is over or SIGTERM arrives, and then prints one line of JSON: connections
that were opened, that could not be, that the server closed (and their age then), bytes sent and
read.  Attacks whose connections cost more than any client may go on for up to 20 s more, or what
the roster says, until each is closed; so do those with honest clients beside the attackers, until
each is served.  A line `begun` on standard error says that each attacker has been opened once.
"""
import argparse
import json
import resource
import signal
import statistics
import sys
import time

import attacks_admin  # noqa: F401
import attacks_calls  # noqa: F401
import attacks_frames  # noqa: F401
import attacks_kept  # noqa: F401
import attacks_connections  # noqa: F401
import attacks_crowds  # noqa: F401
import attacks_shares  # noqa: F401
import attacks_tls  # noqa: F401
import attacks_whole  # noqa: F401
from roster import ATTACKS, Target
from swarm import Swarm


def report(names, swarm, seconds):
    cuts = swarm.cuts
    return {"attacks": names, "seconds": round(seconds, 2), "opened": swarm.opened,
            "not_connected": swarm.not_connected, "left": swarm.left, "cut": len(cuts),
            "uncut": swarm.uncut(), "honest": len(swarm.honest), "unserved": swarm.unserved(),
            "tries": [peer.tries for peer in swarm.honest if peer.tries],
            "cut_after_s": round(statistics.median(cuts), 4) if cuts else None,
            "cut_after_s_max": round(max(cuts), 4) if cuts else None,
            "sent_mb": round(swarm.sent / 1e6, 1), "received_mb": round(swarm.received / 1e6, 1)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="what each does: attack.py --list")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--server", default="127.0.0.1:8001",
                        help="HOST:PORT, tls:HOST:PORT or unix:PATH")
    parser.add_argument("--http", default="127.0.0.1:8002", help="the admin port")
    parser.add_argument("--seconds", type=float, help="how long (else as long as in CI)")
    parser.add_argument("--model", default="conv", help="a model of 4 channels")
    parser.add_argument("--wide", default="wide", help="one of 4 channels in, 2,048 out")
    parser.add_argument("--broad", default="broad", help="one of 64 channels in")
    parser.add_argument("--hard", action="store_true", help="leave with resets")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in ATTACKS]
    if unknown:
        parser.error(f"expected names that --list has, got {' '.join(unknown)}")
    if not args.names and not args.list:
        parser.error("expected the name of an attack, got none")
    return args


def main():
    args = parse()
    if args.list:
        for one in ATTACKS.values():
            print(f"{one.name:22} {one.what}")
        return 0
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    chosen = [ATTACKS[name] for name in args.names]
    sizes = [one.receive_bytes for one in chosen if one.receive_bytes]
    swarm = Swarm(min(sizes, default=None), max(one.back_after for one in chosen))
    for one in chosen:
        others = len(swarm.peers)
        one.run(swarm, Target(args.server, args.http, args.model, args.wide, args.broad))
        for peer in swarm.peers[others:]:
            peer.over = one.over
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    begin = time.monotonic()
    swarm.run(args.seconds or max(one.seconds for one in chosen), lambda: bool(stopped),
              lambda: print("begun", file=sys.stderr, flush=True),
              more=max(one.more for one in chosen))
    seconds = time.monotonic() - begin
    swarm.close(args.hard)
    print(json.dumps(report(args.names, swarm, seconds)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
