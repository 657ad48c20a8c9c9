# Attackers against the real daemon, and clients that they must not disturb: label hostile, alone
# on the machine.  Sanitizers are left out: what is judged is time and memory.
vx_e2e_test(NAME hostile_floods FILE tests/hostile/test_floods.py SECONDS 234
  LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_endings FILE tests/hostile/test_endings.py SECONDS 48
  LABELS hostile ONLY SERIAL)
# What CI has no time for.
vx_e2e_test(NAME hostile_floods_rest FILE tests/hostile/test_floods.py SECONDS 157
  LABELS hostile slow ONLY SERIAL ENVIRONMENT "VX_HOSTILE=rest")
vx_e2e_test(NAME hostile_good_clients FILE tests/hostile/test_good_clients.py SECONDS 138
  LABELS hostile slow ONLY SERIAL)
