/* pick - chooses the algorithm and the tile of a convolution; a pure decision.
 *
 * A request never measures: the choice comes from a table of measurements (table.h), or
 * from the cost model (engine/gpu/conv/conv.h) if the table has no row.  AUTO chooses only
 * among algorithms that sum a row in the layer's order, so a pick changes the time but
 * never the bits.
 *
 *   vx_pick_init(&pick, jit, vx_gpu_caps(gpu), vx_gpu_name(gpu));
 *   pick.table = table;                               (may stay NULL)
 *   vx_pick_conv(&pick, &problem, &choice);
 *
 * The order of the search: the row of this size and density, then of the nearest sizes (size.h; of
 * two the larger one first), then the same among the rows of surfaces, then the row of the
 * layer with as many channels in as this one has out, then the lowest cost on a surface.  So the fill of
 * a problem counts only where its density was measured.  Rows of another device or of another
 * version of the kernel's source are ignored.  If a pinned algorithm cannot run a problem, AUTO
 * chooses for that problem.  A problem that is too large for every algorithm of its order gets the
 * choice for half as many rows, because the order of summation must not depend on the size; the
 * code that runs it checks the memory and reports the numbers.
 *
 * Owner    the caller; caps and table are borrowed and must outlive the pick.
 * Thread   any; nothing is written.
 * Limits   sizes up to a factor of four away count as near.
 * Fails    never for a problem inside the limits of engine/gpu/conv/conv.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TUNE_PICK_H
#define VX_ENGINE_TUNE_PICK_H

#include "engine/gpu/conv/conv.h"
#include "engine/tune/table.h"

struct vx_pick {
    const struct vx_caps *caps;
    const struct vx_tune_table *table; /* NULL = the cost model alone */
    enum vx_conv_algorithm algorithm;  /* pinned, or AUTO */
    char device[VX_NAME_BYTES];        /* rows of other devices are ignored */
    char hashes[VX_CONV_ALGORITHMS_COUNT][VX_TUNE_HASH_BYTES]; /* of each main kernel */
};

/* AUTO without a table; takes the hashes of the kernels' sources from the jit. */
void vx_pick_init(struct vx_pick *pick, const struct vx_jit *jit,
                  const struct vx_caps *caps, const char *device);
/* True when the choice came from a row of the table. */
bool vx_pick_conv(const struct vx_pick *pick, const struct vx_conv_problem *problem,
                  struct vx_conv_choice *choice);
/* The tile of an algorithm with the lowest cost; false when none fits the problem. */
bool vx_pick_cheapest(const struct vx_conv_problem *problem,
                      enum vx_conv_algorithm algorithm, const struct vx_caps *caps,
                      struct vx_conv_choice *choice);

#endif
