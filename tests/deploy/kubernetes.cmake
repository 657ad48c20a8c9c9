# What deploy/ gives to other people's tools, and those tools: kubectl, promtool, a Prometheus.  Only in release:
# the daemons that run here have tests of their own under the sanitizers.
vx_e2e_test(NAME deploy_kubernetes FILE tests/deploy/test_kubernetes.py SECONDS 12 LABELS deploy ONLY)
# A real control plane, which deploy/install-deps --kubernetes compiles.
vx_e2e_test(NAME deploy_kubernetes_server FILE tests/deploy/test_kubernetes_server.py SECONDS 20 LABELS slow ONLY)
vx_e2e_test(NAME deploy_images FILE tests/deploy/test_images.py SECONDS 1 LABELS deploy ONLY)
vx_e2e_test(NAME deploy_prometheus FILE tests/deploy/test_prometheus.py SECONDS 15 LABELS deploy ONLY)
