/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/buddy.h"
#include "engine/base/process/alloc.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 4096

static struct vx_buddy *buddy_of(u64 units)
{
    struct vx_buddy *buddy;
    ck_assert_ptr_null(vx_buddy_open(units * UNIT, UNIT, &buddy).fault);
    return buddy;
}

START_TEST(test_open_refuses)
{
    static const struct {
        u64 bytes, unit;
    } cases[] = {{4096, 0},    {4096, 3}, {4096, 4097},
                 {4095, 4096}, {0, 1},    {UINT64_MAX, 1}};
    struct vx_buddy *buddy = (struct vx_buddy *)1;
    vx_status status = vx_buddy_open(cases[_i].bytes, cases[_i].unit, &buddy);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(buddy);
}
END_TEST

START_TEST(test_lowest_offset_first)
{
    struct vx_buddy *buddy = buddy_of(16);
    u64 a, b, c, d;
    ck_assert(vx_buddy_take(buddy, 1, &a)); /* a unit is the least */
    ck_assert(vx_buddy_take(buddy, UNIT + 1, &b));
    ck_assert(vx_buddy_take(buddy, UNIT, &c));
    ck_assert_uint_eq(a, 0);
    ck_assert_uint_eq(b, 2 * UNIT); /* aligned to its size of two units */
    ck_assert_uint_eq(c, UNIT);
    ck_assert_uint_eq(vx_buddy_used(buddy), 4 * UNIT);
    vx_buddy_give(buddy, a);
    ck_assert(vx_buddy_take(buddy, 0, &d));
    ck_assert_uint_eq(d, 0);
    vx_buddy_close(&buddy);
    ck_assert_ptr_null(buddy);
}
END_TEST

START_TEST(test_bounds)
{
    /* 13 units: 8 + 4 + 1.  What lies beyond is never handed out. */
    struct vx_buddy *buddy = buddy_of(13);
    u64 offset, at;
    ck_assert(!vx_buddy_take(buddy, 9 * UNIT, &offset));
    ck_assert(!vx_buddy_take(buddy, UINT64_MAX, &offset));
    ck_assert(vx_buddy_take(buddy, 8 * UNIT, &at));
    ck_assert_uint_eq(at, 0);
    ck_assert(!vx_buddy_take(buddy, 8 * UNIT, &offset));
    ck_assert(vx_buddy_take(buddy, 4 * UNIT, &offset));
    ck_assert_uint_eq(offset, 8 * UNIT);
    ck_assert(!vx_buddy_take(buddy, 2 * UNIT, &offset));
    ck_assert(vx_buddy_take(buddy, UNIT, &offset));
    ck_assert_uint_eq(offset, 12 * UNIT);
    ck_assert(!vx_buddy_take(buddy, 1, &offset));
    ck_assert_uint_eq(vx_buddy_used(buddy), 13 * UNIT);
    vx_buddy_give(buddy, at);
    ck_assert(vx_buddy_take(buddy, 5 * UNIT, &offset));
    ck_assert_uint_eq(offset, 0);
    vx_buddy_close(&buddy);
}
END_TEST

/* The bytes that an empty range can give, whatever is in use now. */
START_TEST(test_could)
{
    for (u64 units = 1; units <= 70; units++) {
        struct vx_buddy *buddy = buddy_of(units);
        u64 offset;
        for (u64 want = 0; want <= 140; want++)
            for (u64 more = 0; more < 2; more++) {
                bool could = vx_buddy_could(buddy, want * UNIT + more);
                u64 piece = vx_buddy_piece(UNIT, want * UNIT + more);
                ck_assert_int_eq(could, piece <= vx_buddy_largest(buddy));
                bool taken = vx_buddy_take(buddy, want * UNIT + more, &offset);
                ck_assert_int_eq(could, taken);
                if (taken) ck_assert_uint_eq(vx_buddy_used(buddy), piece);
                if (taken) ck_assert(vx_buddy_could(buddy, want * UNIT + more));
                if (taken) vx_buddy_give(buddy, offset);
            }
        ck_assert(!vx_buddy_could(buddy, UINT64_MAX));
        vx_buddy_close(&buddy);
    }
}
END_TEST

/* The model's blocks: the owner of each unit, 0 = free. */
#define MODEL_UNITS 1000
struct model {
    u16 owner[MODEL_UNITS];
    u64 offset[MODEL_UNITS + 1];
    u64 units[MODEL_UNITS + 1];
    bool placed[MODEL_UNITS + 1]; /* by take_at */
    u64 used;
};

static void model_set(struct model *model, u16 id, u16 from, u16 to)
{
    for (u64 u = 0; u < model->units[id]; u++) {
        u64 unit = model->offset[id] / UNIT + u;
        ck_assert_uint_lt(unit, MODEL_UNITS);
        ck_assert_uint_eq(model->owner[unit], from); /* no two blocks overlap */
        model->owner[unit] = to;
    }
}

/* The lowest free place for a block, found by trying all of them. */
static bool model_find(const struct model *model, u64 units, u64 *offset)
{
    for (u64 at = 0; at + units <= MODEL_UNITS; at += units) {
        u64 u = 0;
        while (u < units && !model->owner[at + u]) u++;
        if (u < units) continue;
        *offset = at * UNIT;
        return true;
    }
    return false;
}

/* A place for take_at, anywhere: a run of as many units that are free; 0: there is none. */
static u64 model_run(const struct model *model, struct voxels_random *random, u64 *offset)
{
    u64 at = (u64)voxels_between(random, 0, MODEL_UNITS - 1), units = 0;
    u64 most = (u64)voxels_between(random, 1, 200);
    while (at + units < MODEL_UNITS && units < most && !model->owner[at + units]) units++;
    *offset = at * UNIT;
    return units;
}

/* A block of take may be given by give_at, too. */
static void model_give(struct model *model, struct vx_buddy *buddy, u16 id, bool at)
{
    if (at || model->placed[id])
        vx_buddy_give_at(buddy, model->offset[id], model->units[id] * UNIT);
    else
        vx_buddy_give(buddy, model->offset[id]);
    model_set(model, id, id, 0);
    model->used -= model->units[id];
    model->units[id] = 0;
}

START_TEST(test_random_against_model)
{
    static struct model model;
    struct voxels_random random = {(u64)_i + 1};
    struct vx_buddy *buddy = buddy_of(MODEL_UNITS);
    memset(&model, 0, sizeof model);
    for (int step = 0; step < 20000; step++) {
        u16 id = (u16)voxels_between(&random, 1, MODEL_UNITS);
        if (model.units[id]) {
            model_give(&model, buddy, id, voxels_between(&random, 0, 1));
        } else if (!voxels_between(&random, 0, 2)) {
            u64 units = model_run(&model, &random, &model.offset[id]);
            if (!units) continue;
            vx_buddy_take_at(buddy, model.offset[id],
                             units * UNIT - (u64)voxels_between(&random, 0, UNIT - 1));
            model.placed[id] = true;
            model.units[id] = units;
            model_set(&model, id, 0, id);
            model.used += units;
        } else {
            u64 bytes =
                (u64)voxels_between(&random, 0, 1 << voxels_between(&random, 0, 19));
            model.placed[id] = false;
            u64 units = 1;
            u64 expected = 0;
            while (units * UNIT < bytes) units *= 2;
            bool fits = model_find(&model, units, &expected);
            ck_assert_int_eq(vx_buddy_take(buddy, bytes, &model.offset[id]), fits);
            if (!fits) continue;
            ck_assert_uint_eq(model.offset[id], expected);
            model.units[id] = units;
            model_set(&model, id, 0, id);
            model.used += units;
        }
        ck_assert_uint_eq(vx_buddy_used(buddy), model.used * UNIT);
    }
    for (u16 id = 1; id <= MODEL_UNITS; id++)
        if (model.units[id]) model_give(&model, buddy, id, false);
    /* All free blocks have merged again: 1000 = 512 + 256 + ... */
    u64 offset;
    ck_assert_uint_eq(vx_buddy_used(buddy), 0);
    ck_assert(vx_buddy_take(buddy, 512 * UNIT, &offset));
    ck_assert_uint_eq(offset, 0);
    ck_assert(vx_buddy_take(buddy, 256 * UNIT, &offset));
    ck_assert_uint_eq(offset, 512 * UNIT);
    vx_buddy_close(&buddy);
}
END_TEST

START_TEST(test_one_piece_again)
{
    struct vx_buddy *buddy = buddy_of(64);
    u64 offsets[64], whole;
    for (int i = 0; i < 64; i++) ck_assert(vx_buddy_take(buddy, UNIT, &offsets[i]));
    for (int i = 0; i < 64; i++) vx_buddy_give(buddy, offsets[i * 37 % 64]);
    ck_assert(vx_buddy_take(buddy, 64 * UNIT, &whole));
    vx_buddy_close(&buddy);
}
END_TEST

/* Taking or returning a block that is not there is a programming error, detected at once. */
START_TEST(test_wrong_give_panics)
{
    struct vx_buddy *buddy = buddy_of(16);
    u64 a, b;
    ck_assert(vx_buddy_take(buddy, 4 * UNIT, &a));
    ck_assert(vx_buddy_take(buddy, UNIT, &b));
    switch (_i) {
    case 0: vx_buddy_give(buddy, a + UNIT); break;  /* inside a block */
    case 1: vx_buddy_give(buddy, 8 * UNIT); break;  /* free */
    case 2: vx_buddy_give(buddy, 1); break;         /* between units */
    case 3: vx_buddy_give(buddy, 16 * UNIT); break; /* beyond */
    case 4: vx_buddy_give_at(buddy, 15 * UNIT, 2 * UNIT); break;
    case 5: vx_buddy_take_at(buddy, 15 * UNIT, 2 * UNIT); break;
    case 6: vx_buddy_take_at(buddy, 5 * UNIT + 1, UNIT); break;
    case 7: vx_buddy_take_at(buddy, 3 * UNIT, 1); break;        /* inside a block */
    case 8: vx_buddy_take_at(buddy, 4 * UNIT, 4 * UNIT); break; /* in part */
    default: vx_buddy_give(buddy, b); vx_buddy_give(buddy, b);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("buddy");
    TCase *cases = tcase_create("buddy");
    tcase_set_timeout(cases, 30);
    tcase_add_loop_test(cases, test_open_refuses, 0, 6);
    tcase_add_test(cases, test_lowest_offset_first);
    tcase_add_test(cases, test_bounds);
    tcase_add_test(cases, test_could);
    tcase_add_loop_test(cases, test_random_against_model, 0, 5);
    tcase_add_test(cases, test_one_piece_again);
    tcase_add_loop_test_raise_signal(cases, test_wrong_give_panics, SIGABRT, 0, 10);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
