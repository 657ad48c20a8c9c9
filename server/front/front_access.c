/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/front_private.h"

#include <stdio.h>
#include <string.h>

/* What comes in the time of the burst, at least one. */
static struct vx_access_limit limit_of(i64 per_s, i64 burst_ms)
{
    f64 burst = (f64)per_s * (f64)burst_ms / 1000;
    return (struct vx_access_limit){.per_s = (f64)per_s, .burst = burst < 1 ? 1 : burst};
}

vx_status vx_front_open_access(struct vx_front *front, struct vx_why *why)
{
    const struct vx_config *config = front->config;
    i64 burst_ms = config->connection_burst_ms;
    struct vx_access_options options = {
        .tokens = config->tokens[0] != '\0',
        .health_asks = config->token_health,
        .no_certificates = !config->tls_client_ca[0],
        .connections_max = (i32)config->connections_max,
        .connection = {
            [VX_ACCESS_REQUESTS] = limit_of(config->connection_requests, burst_ms),
            [VX_ACCESS_BYTES] = limit_of(config->connection_bytes, burst_ms),
            [VX_ACCESS_VOXELS] = limit_of(config->connection_voxels, burst_ms),
        }};
    bool limited = config->connection_requests || config->connection_bytes ||
                   config->connection_voxels;
    if (!options.tokens && !limited) return VX_OK;
    VX_TRY(vx_access_open(&options, &front->access));
    if (!options.tokens) return VX_OK;
    struct vx_why said = {""};
    vx_status st = vx_access_file_open(&front->tokens, &front->loop, config->tokens,
                                       front->access, &said);
    if (st.fault) vx_why_set(why, "tokens: %.240s", vx_status_text(st, &said));
    return st;
}

/* ------- the admin port ------- */

/* Probes ask for these, and know no token.  The reasons name models, so they are left
 * out. */
static bool page_is_probe(const struct vx_front *front,
                          const struct vx_http_request *request,
                          struct vx_http_reply *reply)
{
    bool ready = !strcmp(request->path, "/v2/health/ready");
    if (!ready && strcmp(request->path, "/v2/health/live") != 0) return false;
    bool yes = !ready || vx_front_is_ready(front);
    reply->status = yes ? 200 : 503;
    reply->content_type = "application/json";
    reply->length = (size_t)snprintf(reply->body, reply->capacity, "{\"%s\":%s}\n",
                                     ready ? "ready" : "live", yes ? "true" : "false");
    return true;
}

bool vx_front_refuses_page(const struct vx_front *front,
                           const struct vx_http_request *request,
                           struct vx_http_reply *reply)
{
    struct vx_why why = {""};
    if (!front->config->token_admin) return false;
    if (!request->authorization && page_is_probe(front, request, reply)) return true;
    vx_status st = vx_access_enter_admin(front->access, request->authorization,
                                         request->authorization_length, &why);
    if (!st.fault) return false;
    reply->status = vx_status_code(st) == VX_CODE_UNAUTHENTICATED ? 401 : 403;
    reply->length =
        (size_t)snprintf(reply->body, reply->capacity, "%s\n", vx_status_text(st, &why));
    return true;
}
