/* SPDX-License-Identifier: Apache-2.0 */
#include "server/base/config.h"

#include <string.h>

vx_status vx_config_check(const struct vx_config *config, struct vx_why *why)
{
    const struct {
        bool said, means_something;
        const char *name, *needs;
    } rows[] = {
        {config->said.client_shm_bytes, strcmp(config->client_shm, "off") != 0,
         "client-shm-bytes", "--client-shm unix or local"},
        {config->said.kernel_cache_bytes, config->kernel_cache[0] != '\0',
         "kernel-cache-bytes", "a directory as --kernel-cache"},
        {config->said.repository_poll_ms, !strcmp(config->model_control, "poll"),
         "repository-poll-ms", "--model-control poll"},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        VX_ENSURE_WHY(rows[i].means_something || !rows[i].said, why, INVALID_ARGUMENT,
                      "a setting does nothing without another",
                      "--%s: expected %s with it; without that it does nothing",
                      rows[i].name, rows[i].needs);
    return VX_OK;
}
