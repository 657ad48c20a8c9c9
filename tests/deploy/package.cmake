# The Debian packages, from the programs of this build; in a system that is booted.  The first run makes that
# system, which takes a minute more.
vx_e2e_test(NAME package FILE tests/deploy/test_package.py ONLY LABELS package dear SECONDS 150)
vx_e2e_test(NAME release FILE tests/deploy/test_release.py ONLY LABELS slow SECONDS 400 BUSY)
