/* infer_sizes_rig - a model with outputs whose size is known late, and what its worker says of them.
 *
 *   sizes_set_up();                                   (rig_tear_down ends it)
 *   const struct rig_run *run = start_two(first, second);
 *   say_sizes(run, 0, 5);
 *   ck_assert_int_eq(expect_places(run, 0)->refused, 0);
 *
 * Owner    one test program, on top of infer_rig.
 * Thread   the test's.
 * Limits   those of infer_rig.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_INFER_SIZES_RIG_H
#define VX_TESTS_INFER_SIZES_RIG_H

#include "tests/unit/server/infer/infer_rig.h"

#include <check.h>
#include <string.h>

static struct vx_infer *const infer = &rig.infer;

/* "normals" and "score" lie on set 0; "far" (f32 x 2) has its coordinates in "far_xyz". */
enum { NORMALS, SCORE, FAR, FAR_XYZ };
#define ASKS (1u << FAR | 1u << FAR_XYZ)

static inline void sizes_set_up(void)
{
    rig_set_up();
    struct vx_signature *signature = rig_signature();
    signature->outputs_count = 4;
    signature->outputs[FAR] =
        (struct vx_output){"far", VX_DTYPE_F32, 2, 1, FAR_XYZ, "2x2x2", 0, {0}};
    signature->outputs[FAR_XYZ] =
        (struct vx_output){"far_xyz", VX_DTYPE_I32, 4, 1, FAR_XYZ, "2x2x2", 0, {0}};
}

static struct vx_message_sizes sizes; /* that the worker says next */

/* The next SIZES is about the run, with so many rows for one item. */
static inline void say_sizes(const struct rig_run *run, i32 item, i64 rows)
{
    memset(&sizes, 0, sizeof sizes);
    sizes.head = (struct vx_message_head){VX_MESSAGE_SIZES, 0, run->run.head.serial};
    sizes.items_count = 1;
    sizes.items[0].item = item;
    sizes.items[0].rows[FAR] = sizes.items[0].rows[FAR_XYZ] = rows;
    vx_infer_on_sizes(infer, run->worker, &sizes);
}

/* What the worker is told last, about one item. */
static inline const struct vx_places_item *expect_places(const struct rig_run *run,
                                                         i32 item)
{
    ck_assert_int_gt(rig.places_count, 0);
    const struct rig_places *said = &rig.places[rig.places_count - 1];
    ck_assert_int_eq(said->worker, run->worker);
    ck_assert_int_eq(said->places.head.kind, VX_MESSAGE_PLACES);
    ck_assert_uint_eq(said->places.head.serial, run->run.head.serial);
    ck_assert_int_eq(said->places.items_count, 1);
    ck_assert_int_eq(said->places.items[0].item, item);
    return &said->places.items[0];
}

/* Both calls in one batch. */
static inline const struct rig_run *start_two(struct vx_call *first,
                                              struct vx_call *second)
{
    vx_infer_on_call(infer, first);
    vx_infer_on_call(infer, second);
    vx_infer_dispatch(infer);
    ck_assert_int_eq(rig.runs_count, 1);
    ck_assert_int_eq(rig.runs[0].run.items_count, 2);
    return &rig.runs[0];
}

/* The worker refuses what it was told to refuse. */
static inline void end_refused(const struct rig_run *run, i32 item)
{
    rig_done(run);
    rig_said.items[item].code = VX_CODE_CANCELLED;
    rig_end(run);
}

#endif
