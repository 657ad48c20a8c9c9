# SPDX-License-Identifier: Apache-2.0
"""The list of attacks, by name."""
import dataclasses
import typing

from swarm import MORE_SECONDS

ATTACKS = {}


@dataclasses.dataclass(frozen=True)
class Target:
    """Where the daemon listens, and the models whose answers and whose requests are large."""
    grpc: str
    http: str
    model: str = "conv"
    wide: str = "wide"
    broad: str = "broad"


@dataclasses.dataclass(frozen=True)
class Attack:
    """run(swarm, target) adds the attackers' connections, and honest ones that they may not harm.

    over            each connection costs more than any client may: it must be closed
    counted         by us, so that the metric and the log have it; else it is gRPC that closes it
    receive_bytes   how much the attackers' sockets hold
    back_after      seconds until an attacker whose connection was closed comes back
    seconds         how long the attack lasts in CI
    more            seconds at most until those over an allowance are closed, and the honest served
    arena           it sends whole requests; their tensors lie in the arena, which is a setting's
    """
    name: str
    what: str
    run: typing.Callable
    over: bool = False
    counted: bool = True
    receive_bytes: int | None = None
    back_after: float = 0.01
    seconds: float = 2.5
    more: float = MORE_SECONDS
    arena: bool = False

    @property
    def admin(self):
        return self.name.startswith("admin_")


def attack(what, **more):
    def enter(function):
        name = function.__name__
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, what, function, **more)
        return function
    return enter
