/* Tensors of a request in regions, from the parser to the loop: what is copied, what
 * stays where it is, and that nothing stays taken.  The regions here are the test's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "server/call/call_tensors.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------- regions and slots that count ------- */

#define OWNER 7u

static struct {
    i32 uses, reads, slots;
    bool broken, full, off;
    u8 memory[4096];
    u8 slot_memory[4096];
} world;

bool vx_regions_serve(const struct vx_regions *regions, enum vx_region_kind kind)
{
    (void)regions;
    (void)kind;
    return !world.off;
}

/* "sys" and "gpu", of 1000 bytes each. */
vx_status vx_regions_use(struct vx_regions *regions, const struct vx_peer *peer,
                         const struct vx_request_region *piece, struct vx_why *why,
                         struct vx_place *held)
{
    (void)regions;
    bool on_device = !strcmp(piece->name, "gpu");
    VX_ENSURE_WHY(peer->connection == OWNER && (on_device || !strcmp(piece->name, "sys")),
                  why, NOT_FOUND, "no such region",
                  "Unable to find shared memory region: '%.60s'", piece->name);
    VX_ENSURE(piece->offset <= 1000 && piece->bytes <= 1000 - piece->offset,
              INVALID_ARGUMENT, "a piece that is not in its region");
    *held = (struct vx_place){.offset = piece->offset,
                              .bytes = piece->bytes,
                              .kind = on_device ? VX_PLACE_DEVICE : VX_PLACE_SYSTEM,
                              .region = 1 + on_device,
                              .worker = on_device};
    world.uses++;
    return VX_OK;
}

void vx_regions_done(struct vx_regions *regions, struct vx_place *held)
{
    (void)regions;
    ck_assert_int_gt(held->region, 0);
    *held = (struct vx_place){0};
    world.uses--;
}

bool vx_regions_read(struct vx_regions *regions, const struct vx_place *held, void *to)
{
    (void)regions;
    ck_assert_int_eq(held->region, 1);
    memcpy(to, world.memory + held->offset, held->bytes);
    world.reads++;
    return !world.broken;
}

static bool take(void *context, size_t bytes, struct vx_place *slot)
{
    (void)context;
    if (world.full) return false;
    *slot = (struct vx_place){64, bytes, VX_PLACE_ARENA, 0, 0};
    world.slots++;
    return true;
}

static void give(void *context, struct vx_place *slot)
{
    (void)context;
    ck_assert_uint_gt(slot->bytes, 0);
    *slot = (struct vx_place){0};
    world.slots--;
}

static u8 *memory(void *context, const struct vx_place *slot)
{
    (void)context;
    return world.slot_memory + slot->offset;
}

static struct vx_slots slots = {.take = take, .give = give, .memory = memory};

/* ------- a request ------- */

static struct vx_call call;
static struct vx_call_memory options;
static struct vx_why why;

static void put(struct vx_request_tensor *tensor, const char *name,
                enum vx_wire_type type, i64 columns)
{
    *tensor = (struct vx_request_tensor){
        .type = type, .rank = 2, .shape = {5, columns}, .elements = 5 * columns};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

static void place(struct vx_request_region *region, const char *name, u64 offset,
                  u64 bytes)
{
    *region = (struct vx_request_region){.offset = offset, .bytes = bytes};
    snprintf(region->name, sizeof region->name, "%s", name);
}

/* coords and feats in `name`, an output too. */
static void set_up(const char *name)
{
    memset(&world, 0, sizeof world);
    slots.bytes = 0;
    for (size_t i = 0; i < sizeof world.memory; i++) world.memory[i] = (u8)(i * 11 + 3);
    why.text[0] = '\0';
    memset(&call, 0xdd, sizeof call); /* what the parser does not set */
    memset(&call.request, 0, sizeof call.request);
    call.peer = (struct vx_peer){.connection = OWNER};
    options =
        (struct vx_call_memory){.slots = &slots, .regions = (struct vx_regions *)&world};
    call.request.inputs_count = 2;
    call.request.outputs_count = 2;
    put(&call.request.inputs[0], "coords", VX_WIRE_INT32, 4);
    put(&call.request.inputs[1], "feats", VX_WIRE_FP32, 4);
    place(&call.request.inputs[0].region, name, 16, 80);
    place(&call.request.inputs[1].region, name, 200, 80);
    place(&call.request.outputs_region[1], name, 400, 60);
}

static void expect_nothing_taken(void)
{
    ck_assert_int_eq(world.uses, 0);
    ck_assert_int_eq(world.slots, 0);
    for (i32 i = 0; i < VX_INPUTS_MAX; i++) {
        ck_assert_int_eq(call.inputs_held[i].region, 0);
        ck_assert_uint_eq(call.request.inputs[i].place.bytes, 0);
    }
    for (i32 i = 0; i < VX_REQUEST_OUTPUTS_MAX; i++)
        ck_assert_int_eq(call.outputs_held[i].region, 0);
}

/* Where coords lie; whether every worker has a GPU; whether their coords_ref is asked
 * for; whether they are copied. */
static const struct {
    const char *region;
    bool in_place, named, copied;
} rows[] = {
    {"sys", false, false, true},  {"sys", true, false, false},
    {"sys", true, true, true},    {"sys", false, true, true},
    {"gpu", false, false, false}, {"gpu", true, false, false},
};

START_TEST(coordinates_are_copied_where_they_must_be)
{
    set_up(rows[_i].region);
    options.coords_in_place = rows[_i].in_place;
    call.request.coords_named = rows[_i].named;
    vx_status st = vx_call_tensors_take(&options, &call, &why);
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
    const struct vx_request_tensor *coords = &call.request.inputs[0];
    i32 copied = rows[_i].copied;
    ck_assert_int_eq(world.reads, copied);
    ck_assert_int_eq(world.slots, copied);
    ck_assert_int_eq(world.uses, 3);
    ck_assert_uint_eq(coords->place.bytes, 80);
    ck_assert_uint_eq(call.copied_bytes, copied ? 80 : 0);
    ck_assert_int_ne(call.inputs_held[0].region, 0); /* the region is still noted */
    ck_assert_int_eq(vx_place_in_region(&coords->place), !copied);
    ck_assert_uint_eq(coords->place.offset, copied ? 64 : 16);
    if (copied) ck_assert(!memcmp(world.slot_memory + 64, world.memory + 16, 80));
    ck_assert_uint_eq(call.request.inputs[1].place.offset, 200);
    ck_assert_int_eq(call.request.inputs[1].place.region, call.inputs_held[1].region);
    ck_assert_int_eq(call.outputs_held[0].region, 0);
    ck_assert_uint_eq(call.outputs_held[1].bytes, 60);
    vx_call_tensors_give(&slots, options.regions, &call);
    ck_assert_int_eq(world.uses, 0);
    vx_call_tensors_give(&slots, options.regions, &call); /* a second call does nothing */
}
END_TEST

/* As many as a model serves; and what is not copied costs nobody anything. */
START_TEST(what_some_model_serves_is_copied)
{
    static const _Atomic i64 most = 5, none = 0;
    set_up("sys");
    options.voxels_most = &most;
    ck_assert(!vx_call_tensors_take(&options, &call, &why).fault);
    ck_assert_int_eq(world.reads, 1);
    vx_call_tensors_give(&slots, options.regions, &call);
    set_up("sys");
    options.voxels_most = &none;
    options.coords_in_place = true;
    ck_assert(!vx_call_tensors_take(&options, &call, &why).fault);
    ck_assert_int_eq(world.reads, 0);
    vx_call_tensors_give(&slots, options.regions, &call);
}
END_TEST

START_TEST(what_has_no_bytes_lies_nowhere)
{
    set_up("sys");
    for (i32 i = 0; i < 2; i++) {
        call.request.inputs[i].shape[0] = call.request.inputs[i].elements = 0;
        call.request.inputs[i].region.bytes = 0;
    }
    ck_assert(!vx_call_tensors_take(&options, &call, &why).fault);
    ck_assert_int_eq(world.uses, 1); /* the use by the output */
    ck_assert_int_eq(world.slots + world.reads, 0);
    for (i32 i = 0; i < 2; i++)
        ck_assert_int_eq(call.request.inputs[i].place.kind, VX_PLACE_ARENA);
    vx_call_tensors_give(&slots, options.regions, &call);
    expect_nothing_taken();
}
END_TEST

START_TEST(only_coordinates_are_copied)
{
    static const struct {
        enum vx_wire_type type;
        i32 rank;
        i64 columns;
    } others[] = {{VX_WIRE_INT64, 2, 4}, {VX_WIRE_INT32, 1, 4}, {VX_WIRE_INT32, 2, 5}};
    for (size_t i = 0; i < VX_COUNT(others); i++) {
        set_up("sys");
        struct vx_request_tensor *input = &call.request.inputs[0];
        input->type = others[i].type;
        input->rank = others[i].rank;
        input->shape[1] = others[i].columns;
        ck_assert(!vx_call_tensors_take(&options, &call, &why).fault);
        ck_assert_int_eq(world.reads, 0);
        ck_assert_int_eq(world.uses, 3);
        vx_call_tensors_give(&slots, options.regions, &call);
    }
}
END_TEST

static void no_regions(void)
{
    options.regions = NULL;
}
static void off(void)
{
    world.off = true;
}
static void stranger(void)
{
    call.peer.connection = OWNER + 1;
}
static void unknown_input(void)
{
    place(&call.request.inputs[1].region, "nope", 0, 80);
}
static void unknown_output(void)
{
    place(&call.request.outputs_region[0], "nope", 0, 80);
}
static void outside(void)
{
    call.request.outputs_region[1].offset = 999;
}
static void full(void)
{
    world.full = true;
}
static void too_small(void)
{
    world.full = true;
    slots.bytes = 100; /* 80 bytes take a block of 128 */
}
static void cut(void)
{
    world.broken = true;
}
/* Five voxels. */
static void more_than_any_model(void)
{
    static const _Atomic i64 most = 4;
    options.voxels_most = &most;
}
static void named_on_device(void)
{
    place(&call.request.inputs[0].region, "gpu", 16, 80);
    call.request.coords_named = true;
}
static void slot_beside(void) /* feats came in the message */
{
    call.request.inputs[1].region.name[0] = '\0';
    ck_assert(take(NULL, 80, &call.request.inputs[1].place));
    call.request.outputs_region[1].offset = 999;
}

static const struct {
    void (*change)(void);
    enum vx_code code;
    const char *text;
} failures[] = {
    {no_regions, VX_CODE_UNIMPLEMENTED, "shared memory is not enabled on this server"},
    {off, VX_CODE_UNIMPLEMENTED, "shared memory is not enabled on this server"},
    {stranger, VX_CODE_NOT_FOUND, "Unable to find shared memory region: 'sys'"},
    {unknown_input, VX_CODE_NOT_FOUND, "Unable to find shared memory region: 'nope'"},
    {unknown_output, VX_CODE_NOT_FOUND, "Unable to find shared memory region: 'nope'"},
    {outside, VX_CODE_INVALID_ARGUMENT, "not in its region"},
    {full, VX_CODE_RESOURCE_EXHAUSTED, "no room for 80 bytes of input 'coords'"},
    {too_small, VX_CODE_RESOURCE_EXHAUSTED,
     "input 'coords' needs 128 bytes, a block of a power of two, and arena_bytes is 100: "
     "send fewer voxels"},
    {cut, VX_CODE_FAILED_PRECONDITION,
     "its shared memory object was truncated by the client"},
    {more_than_any_model, VX_CODE_RESOURCE_EXHAUSTED,
     "input 'coords' has 80 bytes, and no model here serves more than 4 voxels in one "
     "request"},
    {named_on_device, VX_CODE_INVALID_ARGUMENT,
     "coords in device memory get no coords_ref"},
    {slot_beside, VX_CODE_INVALID_ARGUMENT, "not in its region"},
};

START_TEST(a_failure_leaves_nothing_taken)
{
    set_up("sys");
    failures[_i].change();
    vx_status st = vx_call_tensors_take(&options, &call, &why);
    ck_assert_int_eq(vx_status_code(st), failures[_i].code);
    ck_assert_msg(strstr(vx_status_text(st, &why), failures[_i].text), "%s",
                  vx_status_text(st, &why));
    expect_nothing_taken();
}
END_TEST

START_TEST(a_request_without_regions_needs_none)
{
    set_up("sys");
    options.regions = NULL;
    for (i32 i = 0; i < 2; i++) call.request.inputs[i].region.name[0] = '\0';
    call.request.outputs_region[1].name[0] = '\0';
    ck_assert(!vx_call_tensors_take(&options, &call, &why).fault);
    expect_nothing_taken();
    vx_call_tensors_give(&slots, NULL, &call);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("call_tensors");
    TCase *tcase = tcase_create("take");
    tcase_add_loop_test(tcase, coordinates_are_copied_where_they_must_be, 0,
                        (int)VX_COUNT(rows));
    tcase_add_test(tcase, what_some_model_serves_is_copied);
    tcase_add_test(tcase, what_has_no_bytes_lies_nowhere);
    tcase_add_test(tcase, only_coordinates_are_copied);
    tcase_add_loop_test(tcase, a_failure_leaves_nothing_taken, 0,
                        (int)VX_COUNT(failures));
    tcase_add_test(tcase, a_request_without_regions_needs_none);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
