# Attackers against the real daemon, and clients that they must not disturb: label hostile, alone
# on the machine.  Sanitizers are left out: what is judged is time and memory.
vx_e2e_test(NAME hostile SECONDS 170 LABELS hostile ONLY SERIAL
  LANES -- tests/hostile/test_floods.py tests/hostile/test_endings.py -- tests/hostile/test_floods_beside.py)
# What the rig says of memory, without a daemon.
vx_e2e_test(NAME hostile_rig FILE tests/hostile/test_rig.py)
# What CI has no time for.
vx_e2e_test(NAME hostile_rest SECONDS 120 LABELS hostile slow ONLY SERIAL ENVIRONMENT "VX_HOSTILE=rest"
  LANES -- tests/hostile/test_floods.py -- tests/hostile/test_floods_beside.py)
vx_e2e_test(NAME hostile_good_clients FILE tests/hostile/test_good_clients.py SECONDS 138
  LABELS hostile slow ONLY SERIAL)
