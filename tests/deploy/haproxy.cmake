# HAProxy and Envoy in front of two daemons.  Only in release: the daemons have tests of their own under the sanitizers.
vx_e2e_test(NAME deploy_haproxy FILE tests/deploy/test_haproxy.py SECONDS 30 LABELS deploy ONLY)
vx_e2e_test(NAME deploy_haproxy_tls FILE tests/deploy/test_haproxy_tls.py SECONDS 45 LABELS deploy dear ONLY)
vx_e2e_test(NAME deploy_envoy FILE tests/deploy/test_envoy.py SECONDS 20 LABELS deploy ONLY)
vx_e2e_test(NAME deploy_envoy_tls FILE tests/deploy/test_envoy_tls.py SECONDS 25 LABELS deploy dear ONLY)
vx_e2e_test(NAME deploy_one_host FILE tests/deploy/test_one_host.py SECONDS 12 LABELS deploy ONLY)
