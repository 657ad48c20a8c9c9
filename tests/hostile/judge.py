#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge - attacks one after another against a daemon of its own, and a table of what each did.

    judge.py --voxeld build/release/bin/voxeld                  every attack by itself
    judge.py --voxeld build/release/bin/voxeld ping slow_readers
    judge.py --voxeld build/release/bin/voxeld --unix --fresh ping,priority headers_only

Names that are joined by commas attack at once.  The daemon stays the same until something hurts it;
with --fresh each attack meets a new one.  Exit code 0: nothing was wrong.
"""
import argparse
import os
import sys
import tempfile

import rig
from attack import ATTACKS

COLUMNS = (f"{'attack':24} {'p99 ms':>8} {'worst':>7} {'new':>7} {'admin':>7} {'failed':>9}"
           f" {'before':>6} {'peak':>6} {'after':>6} {'over s':>6} {'cut':>6}/{'opened':6}"
           f" {'sent MB':>8}")


def row(finding):
    def ms(value):
        return "-" if value is None else f"{value:.0f}"
    one, mb = finding.attacker, 1 << 20
    recovered = "never" if finding.recovered_s is None else f"{finding.recovered_s:.1f}"
    return (f"{','.join(finding.names):24} {ms(finding.p99_ms):>8} {ms(finding.worst_ms):>7}"
            f" {ms(finding.newcomer_ms):>7} {ms(finding.admin_ms):>7}"
            f" {finding.failed:>4}/{finding.asked:<4} {finding.rss_before // mb:>6}"
            f" {finding.rss_peak // mb:>6} {finding.rss_after // mb:>6} {recovered:>6}"
            f" {one['cut']:>6}/{one['opened']:<6} {one['sent_mb']:>8}")


def judge(groups, args):
    wrong, one = 0, None
    print(COLUMNS, flush=True)
    try:
        for names in groups:
            if one is None:
                one = rig.Rig(tempfile.mkdtemp(prefix="hostile-"), *args.flags, unix=args.unix,
                              tls=args.tls,
                              patience=args.patience)
                one.__enter__()
            finding = one.attack(*names, seconds=args.seconds)
            print(row(finding), flush=True)
            for sentence in finding.wrong:
                print(f"    {sentence}", flush=True)
            wrong += bool(finding.wrong)
            if finding.wrong or args.fresh:
                one = end(one, bool(finding.wrong))
    finally:
        if one:
            end(one, True)
    return wrong


def end(one, hurt):
    if hurt:
        one.kill()
    else:
        one.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME[,NAME...]")
    parser.add_argument("--voxeld", default=os.environ.get("VOXELD"))
    parser.add_argument("--unix", action="store_true", help="over the Unix socket, all of them")
    parser.add_argument("--tls", action="store_true", help="over TLS, all of them")
    parser.add_argument("--fresh", action="store_true", help="a new daemon for each")
    parser.add_argument("--seconds", type=float, help="of each attack (else as long as in CI)")
    parser.add_argument("--patience", type=float, default=rig.STALL_SECONDS,
                        help="seconds after which a stall is for ever")
    parser.add_argument("--flags", type=str.split, default=[], help="more flags of the daemon")
    args = parser.parse_args()
    if not args.voxeld:
        parser.error("expected --voxeld PATH or VOXELD in the environment")
    os.environ["VOXELD"] = args.voxeld
    groups = [name.split(",") for name in args.names or ATTACKS]
    unknown = [name for names in groups for name in names if name not in ATTACKS]
    if unknown:
        parser.error(f"expected names of attacks, got {' '.join(unknown)}")
    wrong = judge(groups, args)
    print(f"{len(groups)} attacks, {wrong} of them did harm")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
