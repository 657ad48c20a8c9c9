/* trace_text - the texts of the settings about spans, parsed.
 *
 *   VX_TRY(vx_endpoint_parse(config->otlp_endpoint, why, &endpoint));
 *   VX_TRY(vx_resource_parse(&resource, config->otlp_resource, why));
 *   VX_TRY(vx_ratio_parse(config->otlp_ratio, why, &ratio));
 *
 * Owner    the caller; a resource points into itself and must not move.
 * Thread   any; pure.
 * Limits   VX_ENDPOINT_HOST_BYTES, VX_ENDPOINT_PATH_BYTES, VX_RESOURCE_ATTRIBUTES_MAX.
 * Fails    INVALID_ARGUMENT with the setting, what was expected and what came.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TRACE_TEXT_H
#define VX_SERVER_TRACE_TEXT_H

#include "engine/base/status.h"

/* A name of DNS has at most 253 characters; with the NUL. */
#define VX_ENDPOINT_HOST_BYTES 256
#define VX_ENDPOINT_PORT_BYTES 6
#define VX_ENDPOINT_PATH_BYTES 512
/* Where OTLP/HTTP takes traces, unless the URL has a path of its own. */
#define VX_ENDPOINT_PATH "/v1/traces"

struct vx_endpoint {
    char host[VX_ENDPOINT_HOST_BYTES]; /* without the brackets of an IPv6 address */
    char port[VX_ENDPOINT_PORT_BYTES]; /* "80" when the URL has none */
    char path[VX_ENDPOINT_PATH_BYTES]; /* with the query, if there is one */
    /* HOST:PORT as it was written, for the header Host and the log. */
    char authority[VX_ENDPOINT_HOST_BYTES + VX_ENDPOINT_PORT_BYTES + 2];
};
VX_MUST_USE vx_status vx_endpoint_parse(const char *text, struct vx_why *why,
                                        struct vx_endpoint *endpoint);

/* What the spans' sender says of itself: voxeld's own attributes, then the setting's. */
#define VX_RESOURCE_ATTRIBUTES_MAX 40
#define VX_RESOURCE_TEXT_BYTES     1024
struct vx_resource {
    i32 count;
    const char *keys[VX_RESOURCE_ATTRIBUTES_MAX];
    const char *values[VX_RESOURCE_ATTRIBUTES_MAX];
    char text[VX_RESOURCE_TEXT_BYTES];
};
/* Sets an attribute; both texts must live as long as the resource. */
void vx_resource_set(struct vx_resource *resource, const char *key, const char *value);
/* Sets those of "key=value,key=value", the form of OTEL_RESOURCE_ATTRIBUTES: values may
 * have %XX.  A key that is there gets the new value. */
VX_MUST_USE vx_status vx_resource_parse(struct vx_resource *resource, const char *text,
                                        struct vx_why *why);

/* From 0, none, to 1, all. */
VX_MUST_USE vx_status vx_ratio_parse(const char *text, struct vx_why *why, f64 *ratio);

#endif
