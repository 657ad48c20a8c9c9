/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/devices/devices.h"
#include "server/front/front_private.h"
#include "server/models/placement.h"
#include "server/rpc/rpc.h"
#include "server/trace/exporter.h"
#include "server/trace/trace_text.h"

#include <string.h>

static vx_status expect_traces(const struct vx_config *config, struct vx_why *why)
{
    const struct vx_exporter_options options = {.endpoint = config->otlp_endpoint,
                                                .resource = config->otlp_resource};
    f64 ratio;
    if (!config->otlp_endpoint[0]) return VX_OK;
    VX_TRY(vx_ratio_parse(config->otlp_ratio, why, &ratio));
    return vx_exporter_expect(&options, why);
}

static vx_status expect_devices(const struct vx_config *config, struct vx_why *why)
{
    struct vx_device_list list;
    struct vx_placement_devices devices = {0};
    VX_TRY(vx_devices_read(config, why, &list, &devices.open));
    VX_ENSURE_WHY(list.count == 1 || !config->in_process, why, INVALID_ARGUMENT,
                  "in_process needs exactly one device",
                  "in_process: expected one device, got %d", list.count);
    devices.count = list.count;
    for (i32 i = 0; i < list.count; i++) devices.names[i] = list.names[i];
    return vx_models_expect(config, &devices, why);
}

/* One address in both lists would be refused at the start as taken, by this very process. */
static vx_status expect_apart(const struct vx_config *config, struct vx_why *why)
{
    const char *http = config->http, *port = strrchr(http, ':');
    size_t bytes = strlen(http);
    if (port && !strcmp(port, ":0")) return VX_OK;
    for (const char *at = config->grpc; (at = strstr(at, http)); at++) {
        bool begins = at == config->grpc || strchr(", ", at[-1]);
        VX_ENSURE_WHY(
            !begins || !strchr(", ", at[bytes]), why, INVALID_ARGUMENT,
            "gRPC and HTTP have one address",
            "grpc: expected another address than that of --http, got '%.100s' for "
            "both",
            http);
    }
    return VX_OK;
}

static vx_status expect_addresses(const struct vx_config *config, struct vx_why *why)
{
    struct vx_why said = {""};
    VX_TRY(vx_http_address_check(config->http, why));
    vx_status status = vx_rpc_addresses_check(config->grpc, &said);
    if (status.fault) vx_why_set(why, "grpc: %.240s", vx_status_text(status, &said));
    VX_TRY(status);
    return expect_apart(config, why);
}

vx_status vx_front_expect(const struct vx_config *config, struct vx_why *why)
{
    vx_status status = expect_addresses(config, why);
    if (!status.fault) status = expect_devices(config, why);
    if (!status.fault) status = expect_traces(config, why);
    if (status.fault) vx_config_say_place(config, why);
    return status;
}
