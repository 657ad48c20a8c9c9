/* view - what the handlers of small calls may use of the front.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_VIEW_H
#define VX_SERVER_VIEW_H

#include "server/base/config.h"
#include "server/models/registry.h"

struct vx_access;
struct vx_models;
struct vx_regions;
struct vx_tracing;
struct vx_workers;

struct vx_front_view {
    const struct vx_config *config;
    struct vx_registry *registry;
    struct vx_models *models;   /* for RepositoryModelLoad and Unload; NULL: not served */
    struct vx_regions *regions; /* shared memory of clients; NULL: not served */
    struct vx_access *access;   /* who may ask what; NULL: everybody everything */
    struct vx_tracing *tracing; /* for TraceSetting; NULL: not served */
    const struct vx_workers *workers; /* the workers and their devices; NULL: not known */
    bool ready;    /* a worker is up, models are loaded, not draining */
    bool draining; /* asked to stop: new clients must go elsewhere */
};

#endif
