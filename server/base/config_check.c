/* SPDX-License-Identifier: Apache-2.0 */
#include "server/base/config.h"

#include "engine/base/utf8.h"

#include <string.h>

/* Names in settings are in answers; those of files are not, and may be any bytes. */
static vx_status config_check_names(const struct vx_config *config, struct vx_why *why)
{
    const struct {
        const char *name, *text;
    } rows[] = {{"load-model", config->load_model}, {"placement", config->placement}};
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        VX_ENSURE_WHY(vx_utf8_is(rows[i].text, strlen(rows[i].text)), why,
                      INVALID_ARGUMENT, "a setting with names of models is not UTF-8",
                      "--%s: expected names in UTF-8, got '%.100s'", rows[i].name,
                      rows[i].text);
    return VX_OK;
}

vx_status vx_config_check(const struct vx_config *config, struct vx_why *why)
{
    bool exports = config->otlp_endpoint[0] != '\0';
    /* Each other device has a letter that is not in "cpu". */
    bool gpu = strspn(config->device, "cpu,") < strlen(config->device);
    const struct {
        bool said, means_something;
        const char *name, *needs;
    } rows[] = {
        {config->said.client_shm_bytes, strcmp(config->client_shm, "off") != 0,
         "client-shm-bytes", "--client-shm unix or local"},
        {config->said.gpu_driver, gpu, "gpu-driver", "a GPU in --device"},
        {config->said.gpu_compiler, gpu, "gpu-compiler", "a GPU in --device"},
        {config->said.hip_library, gpu, "hip-library", "a GPU in --device"},
        {config->said.hip_compiler, gpu, "hip-compiler", "a GPU in --device"},
        {config->said.tune, gpu, "tune", "a GPU in --device"},
        {config->said.algorithm, gpu, "algorithm", "a GPU in --device"},
        {config->said.kernel_cache_bytes, config->kernel_cache[0] != '\0',
         "kernel-cache-bytes", "a directory as --kernel-cache"},
        {config->said.tls_key && config->tls_key[0], config->tls_cert[0] != '\0',
         "tls-key", "a certificate as --tls-cert"},
        {config->said.tls_cert && config->tls_cert[0], config->tls_key[0] != '\0',
         "tls-cert", "its private key as --tls-key"},
        {config->said.tls_client_ca && config->tls_client_ca[0],
         config->tls_cert[0] != '\0', "tls-client-ca", "a certificate as --tls-cert"},
        {config->said.tls_client_crl && config->tls_client_crl[0],
         config->tls_client_ca[0] != '\0', "tls-client-crl",
         "authorities as --tls-client-ca"},
        {config->said.worker_seccomp, !config->in_process, "worker-seccomp",
         "workers that are processes, that is, --no-in-process"},
        {config->said.repository_poll_ms, !strcmp(config->model_control, "poll"),
         "repository-poll-ms", "--model-control poll"},
        {config->said.token_health, config->tokens[0] != '\0', "token-health",
         "a file as --tokens"},
        {config->said.token_admin, config->tokens[0] != '\0', "token-admin",
         "a file as --tokens"},
        {config->said.connection_burst_ms,
         config->connection_requests || config->connection_bytes ||
             config->connection_voxels,
         "connection-burst-ms",
         "--connection-requests, --connection-bytes or --connection-voxels"},
        {config->said.otlp_ratio, exports, "otlp-ratio", "--otlp-endpoint"},
        {config->said.otlp_resource, exports, "otlp-resource", "--otlp-endpoint"},
        {config->said.otlp_delay_ms, exports, "otlp-delay-ms", "--otlp-endpoint"},
        {config->said.otlp_timeout_ms, exports, "otlp-timeout-ms", "--otlp-endpoint"},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        VX_ENSURE_WHY(rows[i].means_something || !rows[i].said, why, INVALID_ARGUMENT,
                      "a setting has no effect without another",
                      "--%s has no effect without %s", rows[i].name, rows[i].needs);
    return config_check_names(config, why);
}
