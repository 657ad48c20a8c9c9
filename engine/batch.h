/* batch - one request as the engine sees it, and a list of them that runs together.
 *
 * Owner    the caller; the engine borrows from submit until the batch is collected.
 * Thread   device.
 * Limits   VX_BATCH_ITEMS_MAX items, VX_VOXELS_MAX voxels each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BATCH_H
#define VX_ENGINE_BATCH_H

#include "engine/base/status.h"
#include "engine/base/text/coords_ref.h"
#include "engine/device.h"
#include "engine/signature.h"

/* vx_item.on_device: one bit for each tensor that lies in device memory, imported from
 * another process (vx_engine_import). */
#define VX_ITEM_COORDS    1u
#define VX_ITEM_FEATS     2u
#define VX_ITEM_OUTPUT(o) (4u << (o))

/* How far an item is whose outputs lie on other sets than the request's, and so have
 * as many rows as its geometry shows.
 *   NONE -> OPEN     its geometry is there: `rows` says how many       engine
 *   OPEN -> TOLD     vx_engine_asked                                   caller takes note
 *   TOLD -> PLACED   vx_engine_place: the places are there, or it is refused */
enum vx_asking { VX_ASKING_NONE, VX_ASKING_OPEN, VX_ASKING_TOLD, VX_ASKING_PLACED };

/* One request of a batch.  Rows of outputs on set 0 are in the order of the rows of
 * coords, those of any other set ascend by (sample, x, y, z).  The caller owns all memory
 * that it points to.  Fields marked `out` are zero unless the item ran; on a GPU the times
 * are those of the whole round. */
struct vx_item {
    /* (voxels, coords_columns) row-major.  NULL = use the geometry that `content` names;
     * FAILED_PRECONDITION when the device does not have it. */
    const i32 *coords;
    struct vx_coords_ref coords_ref; /* coords_ref; zeros = none, do not keep it */
    u64 origin;                /* who asks: geometries are kept in shares (shares.h) */
    i32 coords_columns;        /* 4: sample x y z; 3: x y z, all of sample 0 */
    i64 voxels;                /* N, 0 .. VX_VOXELS_MAX */
    i32 shape[3];              /* its own spatial_shape; zeros: the network's */
    bool warms;                /* a warm-up's: nobody reads its answer */
    const void *feats;         /* (voxels, feats_channels), aligned to an element */
    enum vx_dtype feats_dtype; /* F32, F16 or BF16 */
    void *outputs[VX_OUTPUTS_MAX]; /* (rows, channels) each; NULL = not wanted */
    /* A bit 1 << o for each output that is wanted and lies on another set than 0: its
     * address is NULL at submit, and may stay NULL when it has no rows. */
    u32 asks;
    u32 on_device; /* VX_ITEM_* bits; GPUs only */
    /* Another process may write coords meanwhile: the engine copies them once, and
     * checks, uses and reports only the copy.  GPUs only, and not with content. */
    bool coords_change;
    vx_status status;   /* in: an item that has failed is not run; out: the item's own */
    struct vx_why why;  /* out: the sentence of status */
    i64 convert_ns;     /* out: input conversion (Triton's compute_input) */
    i64 geometry_ns;    /* out: keys, hash, maps, or the cache look-up */
    i64 compute_ns;     /* out: layers */
    i64 output_ns;      /* out: output conversion */
    i64 pairs;          /* out: (row, offset) pairs of all maps, each map once */
    i64 set_voxels;     /* out: voxels of all sets, the request's own among them; of a
                           request that failed those that were made before */
    bool geometry_hit;  /* out: every map came from the cache */
    bool geometry_kept; /* out: the cache now has the geometry under `content` */
    bool aside;         /* out: it ran within another batch: vx_batch.aside */
    bool says_taken;    /* it wants to know which algorithms its layers take */
    i32 taken;          /* out: which text of the batch says so, from 1 on; 0: none */
    enum vx_asking asking;    /* out */
    i64 rows[VX_OUTPUTS_MAX]; /* out, once asking is OPEN: of the outputs of `asks` */
};
/* 1 .. VX_BATCH_ITEMS_MAX items.  The engine borrows them, and the memory they point to,
 * from submit until the batch is collected. */
struct vx_batch {
    struct vx_item *items;
    i32 items_count;
    /* Short: a CPU may run it while a request of the batch before goes on; a GPU keeps memory
     * for it. */
    bool brief;
    bool aside;    /* out: it did, with some of its items */
    i64 device_ns; /* out: device time; what two batches share counts for one of them */
    struct vx_taken
        *taken;            /* VX_TAKEN_MAX, if an item wants one; NULL: none is written */
    i32 taken_count;       /* out: different texts; an item of a further one has none */
    i32 open;              /* the engine's: items whose asking is OPEN */
    struct vx_batch *next; /* the engine's */
};

#endif
