/* record_network - which layers are recorded in which run, and the network.json of a run.
 *
 * An engine gives at most VX_NETWORK_OUTPUTS_MAX outputs, so layers are recorded in
 * several runs.  Each has the layers that its outputs need, and no other.  Layers that
 * stand together are recorded in different runs where there are enough: a layer is then
 * computed as it is served, fused with those before it.
 *
 *   VX_TRY(vx_record_plan_make(network, names, &why, &plan));
 *   for (i32 run = 0; run < plan.runs_count; run++)
 *       VX_TRY(vx_record_text(&source, &plan, run, &why, &page));
 *
 * Owner    the caller; the network and its JSON are borrowed.
 * Thread   any; pure.
 * Limits   VX_NETWORK_BYTES_MAX for a text.
 * Fails    NOT_FOUND for a name that no layer has; RESOURCE_EXHAUSTED when a text is too
 *          long.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_RECORD_NETWORK_H
#define VX_ENGINE_TOOLS_RECORD_NETWORK_H

#include "engine/base/text/json.h"
#include "engine/base/text/sentence.h"
#include "engine/network/network.h"

/* In place of a run: all layers, with the outputs that network.json names. */
#define VX_RECORD_OUTPUTS (-1)

/* The distance of layers that are recorded in one run, if there are so many: a
 * convolution, its norm, its activation and an add are then apart. */
#define VX_RECORD_APART 4

struct vx_record_plan {
    i32 runs_count;
    i32 layers_count;          /* that are recorded */
    i32 run[VX_LAYERS_MAX];    /* in which a layer is recorded; -1 = it is not */
    i32 output[VX_LAYERS_MAX]; /* the number of its output there */
};

/* `names`: separated by commas; NULL = all layers. */
VX_MUST_USE vx_status vx_record_plan_make(const struct vx_network *network,
                                          const char *names, struct vx_why *why,
                                          struct vx_record_plan *plan);

struct vx_record_source {
    const struct vx_network *network;
    const struct vx_json *root;  /* of the same network.json */
    enum vx_precision precision; /* of all runs, as the whole network has it */
    i64 voxels;                  /* of the example */
};
/* Writes the network.json of a run: 0 .. runs_count - 1, or OUTPUTS. */
VX_MUST_USE vx_status vx_record_text(const struct vx_record_source *source,
                                     const struct vx_record_plan *plan, i32 run,
                                     struct vx_why *why, struct vx_page *page);

#endif
