# Attackers against the real daemon, and clients that must not notice: label hostile, two minutes in all, alone
# on the machine.  Sanitizers are left out: what is judged is time and memory.
vx_e2e_test(NAME hostile_admin FILE tests/hostile/test_hostile_admin.py TIMEOUT 600 LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_calls FILE tests/hostile/test_hostile_calls.py TIMEOUT 900 LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_frames FILE tests/hostile/test_hostile_frames.py TIMEOUT 900 LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_connections FILE tests/hostile/test_hostile_connections.py TIMEOUT 900
  LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_unix FILE tests/hostile/test_hostile_unix.py TIMEOUT 900 LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_good_clients FILE tests/hostile/test_good_clients.py TIMEOUT 400
  LABELS hostile ONLY SERIAL)
vx_e2e_test(NAME hostile_endings FILE tests/hostile/test_endings.py TIMEOUT 400 LABELS hostile ONLY SERIAL)
