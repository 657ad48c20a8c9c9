/* Items that lie in memory of other processes, on the fake GPU: imported, page-locked, changed
 * while it is read; and items that are answered before they run.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_mix.h"
#include "tests/support/trials.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLIENT_BYTES ((size_t)64 << 20)

static struct vx_gpu_mix mix;
static struct vx_model *model;

/* Stands for another process: memory with a descriptor, and its handle. */
static struct client {
    int fd;
    u8 *own;  /* as the client sees it */
    u8 *seen; /* as the engine imported it */
    u8 handle[VX_IPC_HANDLE_BYTES];
    size_t used;
} client;

static void client_open(void)
{
    client = (struct client){.fd = memfd_create("client", MFD_CLOEXEC)};
    ck_assert_int_ge(client.fd, 0);
    ck_assert(!ftruncate(client.fd, (off_t)CLIENT_BYTES));
    client.own =
        mmap(NULL, CLIENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, client.fd, 0);
    ck_assert_ptr_ne(client.own, MAP_FAILED);
    vx_fake_handle(getpid(), client.fd, CLIENT_BYTES, client.handle);
}

static void client_close(void)
{
    munmap(client.own, CLIENT_BYTES);
    close(client.fd);
}

static void load(void)
{
    struct vx_why why = {{0}};
    model = vx_gpu_rig_load(vx_rig_root);
    mix.signature = vx_model_signature(model);
    vx_status status = vx_engine_warm(vx_gpu_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
}

static void set_up(void)
{
    vx_gpu_rig_set_up();
    vx_gpu_mix_write("fp16");
    vx_gpu_mix_open(4, &mix);
    load();
    client_open();
}

static void tear_down(void)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_fake_set(&(struct vx_fake_settings){0});
    client_close();
    vx_gpu_mix_close(&mix);
    vx_gpu_rig_tear_down();
    ck_assert_int_eq(vx_fake_imported(), 0);
    ck_assert_int_eq(vx_fake_pinned(), 0);
}

static void *import(void)
{
    struct vx_why why = {{0}};
    void *memory;
    vx_status status =
        vx_engine_import(vx_gpu_rig_engine, client.handle, CLIENT_BYTES, &why, &memory);
    ck_assert_msg(!status.fault, "%s", why.text);
    return client.seen = memory;
}

static void run(struct vx_gpu_mix_sent *sent)
{
    vx_alloc_freeze();
    vx_engine_submit(vx_gpu_rig_engine, model, &sent->batch);
    ck_assert_ptr_eq(vx_engine_collect(vx_gpu_rig_engine, true), &sent->batch);
    vx_alloc_thaw();
}

/* Takes more of the client's memory; its content is set later. */
static size_t take(const void *data, size_t bytes)
{
    size_t at = client.used;
    ck_assert_uint_le(at + bytes, CLIENT_BYTES);
    memcpy(client.own + at, data, bytes);
    client.used = vx_round_up(at + bytes, 16) + 16;
    return at;
}

static size_t output_bytes(i32 output, i64 n)
{
    const struct vx_output *it = &mix.signature->outputs[output];
    return (size_t)n * (size_t)it->channels * vx_dtype_bytes(it->dtype);
}

/* Moves tensors of an item to the client's memory: a bit for each, in `device` for device
 * memory or in `host` for host memory.  `own` keeps the outputs' earlier places. */
struct moved {
    u32 there; /* on either side */
    size_t at[VX_OUTPUTS_MAX];
    void *own[VX_OUTPUTS_MAX];
};
static void move(struct vx_item *item, u32 device, u32 host, struct moved *moved)
{
    u32 there = device | host;
    *moved = (struct moved){.there = there};
    item->on_device = device;
    if (there & VX_ITEM_COORDS) {
        size_t at =
            take(item->coords, (size_t)item->voxels * (size_t)item->coords_columns * 4);
        item->coords =
            (void *)((device & VX_ITEM_COORDS ? client.seen : client.own) + at);
        item->coords_change = true;
        item->coords_ref = (struct vx_coords_ref){0};
    }
    if (there & VX_ITEM_FEATS) {
        size_t at = take(item->feats, (size_t)item->voxels * VX_RIG_CHANNELS *
                                          vx_dtype_bytes(item->feats_dtype));
        item->feats = (device & VX_ITEM_FEATS ? client.seen : client.own) + at;
    }
    for (i32 o = 0; o < mix.signature->outputs_count; o++) {
        if (!item->outputs[o] || !(there & VX_ITEM_OUTPUT(o))) continue;
        moved->own[o] = item->outputs[o];
        moved->at[o] = take(item->outputs[o], output_bytes(o, item->voxels));
        item->outputs[o] =
            (device & VX_ITEM_OUTPUT(o) ? client.seen : client.own) + moved->at[o];
    }
}

/* Copies what the client reads to where the check expects it. */
static void move_back(struct vx_item *item, const struct moved *moved)
{
    for (i32 o = 0; o < mix.signature->outputs_count; o++) {
        if (!moved->own[o]) continue;
        memcpy(moved->own[o], client.own + moved->at[o], output_bytes(o, item->voxels));
        item->outputs[o] = moved->own[o];
    }
}

/* Random sizes, types and places; the answers have the same bits as those in the arena. */
START_TEST(an_answer_is_the_same_wherever_it_lies)
{
    struct vx_test_random random = {7 + (u64)_i};
    struct moved moved[12];
    vx_gpu_mix_expect(&mix, model, VX_GPU_MIX_ALL);
    import();
    for (i32 round = 0; round < 6; round++) {
        struct vx_gpu_mix_pick picks[12];
        i32 count = 1 + (i32)(vx_test_next(&random) % VX_COUNT(picks));
        for (i32 i = 0; i < count; i++)
            picks[i] = (struct vx_gpu_mix_pick){
                .request = (i32)(vx_test_next(&random) % VX_GPU_MIX_GOOD),
                .nameless = true,
                .unwanted = (u32)(vx_test_next(&random) & 15)};
        vx_fake_set(&(struct vx_fake_settings){.event_polls = round % 3});
        client.used = 0;
        struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, count);
        for (i32 i = 0; i < count; i++) {
            u32 device = (u32)vx_test_next(&random) & 63;
            u32 host = (u32)vx_test_next(&random) & 63 & ~device;
            move(&sent->items[i], device, host, &moved[i]);
        }
        run(sent);
        for (i32 i = 0; i < count; i++) move_back(&sent->items[i], &moved[i]);
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), count);
    }
    vx_engine_release(vx_gpu_rig_engine, (void **)&client.seen);
    ck_assert_ptr_null(client.seen);
    vx_engine_release(vx_gpu_rig_engine, (void **)&client.seen);
}
END_TEST

/* Only the copy of the coordinates is used, whatever is written to the original afterwards;
 * an error message does not read the original again either. */
START_TEST(coordinates_are_read_once)
{
    const struct vx_gpu_mix_pick picks[2] = {{.request = 3, .nameless = true},
                                             {.request = 6, .nameless = true}};
    static const char *const said[] = {"a coordinate in coords is out of range: expected",
                                       "a voxel appears twice in coords; each"};
    const u32 bits[2] = {_i ? VX_ITEM_COORDS : 0, _i ? 0 : VX_ITEM_COORDS};
    struct moved moved;
    vx_gpu_mix_expect(&mix, model, 1u << 3 | 1u << 6);
    import();
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, 2);
    for (i32 i = 0; i < 2; i++) move(&sent->items[i], bits[0], bits[1], &moved);
    vx_engine_submit(vx_gpu_rig_engine, model, &sent->batch); /* streams work at once */
    memset(client.own, 0xff, client.used);
    ck_assert_ptr_eq(vx_engine_collect(vx_gpu_rig_engine, true), &sent->batch);
    for (i32 i = 0; i < 2; i++) ck_assert(!sent->items[i].geometry_kept);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 2);

    for (i32 bad = 0; bad < 2; bad++) {
        sent = vx_gpu_mix_send(&mix, picks, 2);
        move(&sent->items[0], bits[0], bits[1], &moved);
        i32 *rows = (i32 *)(void *)(client.own + client.used);
        move(&sent->items[1], bits[0], bits[1], &moved);
        if (bad)
            memcpy(rows + 8, rows, 16);
        else
            rows[9] = VX_AXIS_MAX + 1;
        vx_engine_submit(vx_gpu_rig_engine, model, &sent->batch);
        memset(rows, 0, 64);
        ck_assert_ptr_eq(vx_engine_collect(vx_gpu_rig_engine, true), &sent->batch);
        ck_assert(!sent->items[0].status.fault);
        if (sent->items[1].voxels > 1) {
            ck_assert_int_eq(vx_status_code(sent->items[1].status),
                             VX_CODE_INVALID_ARGUMENT);
            ck_assert_msg(strstr(sent->items[1].why.text, said[bad]) != NULL, "%s",
                          sent->items[1].why.text);
        }
        for (i32 i = 0; i < 2; i++)
            for (i32 o = 0; o < mix.signature->outputs_count; o++)
                vx_free(sent->items[i].outputs[o]);
        vx_free(sent);
    }
    vx_engine_release(vx_gpu_rig_engine, (void **)&client.seen);
}
END_TEST

static void answer_before(struct vx_item *item)
{
    item->status = vx_status_of_code(VX_CODE_FAILED_PRECONDITION);
    vx_why_set(&item->why, "answered before it came");
    item->coords = NULL; /* never read */
    item->feats = NULL;
}

/* Items that already have a fault when they are submitted: their memory is not touched, and they
 * are no part of the batch. */
START_TEST(what_is_answered_already_is_not_run)
{
    struct vx_gpu_mix_pick picks[6];
    i64 launches[2];
    vx_gpu_mix_expect(&mix, model, 0x3fu << 2);
    for (i32 i = 0; i < 6; i++)
        picks[i] = (struct vx_gpu_mix_pick){.request = 2 + i, .nameless = true};
    for (u32 mask = 0; mask < 64; mask += 9) { /* 63 is all of them */
        struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, 6);
        struct vx_gpu_mix_pick others[6];
        i32 count = 0;
        for (i32 i = 0; i < 6; i++) {
            if (mask >> i & 1)
                answer_before(&sent->items[i]);
            else
                others[count++] = picks[i];
        }
        i64 before = vx_fake_launches();
        run(sent);
        launches[0] = vx_fake_launches() - before;
        for (i32 i = 0; i < 6; i++) {
            struct vx_item *item = &sent->items[i];
            if (!(mask >> i & 1)) continue;
            ck_assert_int_eq(vx_status_code(item->status), VX_CODE_FAILED_PRECONDITION);
            ck_assert_str_eq(item->why.text, "answered before it came");
            for (i32 o = 0; o < mix.signature->outputs_count; o++) {
                const u8 *out = item->outputs[o];
                for (size_t b = 0; b < output_bytes(o, item->voxels); b++)
                    ck_assert_uint_eq(out[b], 0xe7);
            }
            item->status = mix.requests[picks[i].request].alone.status; /* checked */
            item->why = mix.requests[picks[i].request].alone.why;
            item->pairs = mix.requests[picks[i].request].alone.pairs;
            for (i32 o = 0; o < mix.signature->outputs_count; o++)
                memcpy(item->outputs[o], mix.requests[picks[i].request].outputs[o],
                       output_bytes(o, item->voxels));
        }
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 6);
        if (!count) {
            ck_assert_int_eq(launches[0], 0);
            continue;
        }
        sent = vx_gpu_mix_send(&mix, others, count);
        before = vx_fake_launches();
        run(sent);
        launches[1] = vx_fake_launches() - before;
        ck_assert_int_eq(launches[0], launches[1]);
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), count);
    }
}
END_TEST

START_TEST(on_a_cpu_too)
{
    struct vx_model *cpu = vx_rig_load(vx_rig_root);
    struct vx_rig_request *good = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    struct vx_rig_request *same = vx_rig_request(1, 100, 4, VX_DTYPE_F32);
    struct vx_why why = {{0}};
    void *memory = &why;
    vx_rig_run(cpu, &good->item);
    ck_assert(!good->item.status.fault);
    struct vx_item items[3] = {same->item, same->item, same->item};
    memset(same->outputs, 0xe7, sizeof same->outputs);
    answer_before(&items[0]);
    answer_before(&items[1]);
    answer_before(&items[2]);
    struct vx_batch batch = {.items = items, .items_count = 3};
    vx_engine_run(vx_rig_engine, cpu, &batch);
    for (size_t b = 0; b < sizeof same->outputs; b++)
        ck_assert_uint_eq(((u8 *)same->outputs)[b], 0xe7);
    items[1] = same->item;
    vx_engine_run(vx_rig_engine, cpu, &batch);
    ck_assert_str_eq(items[0].why.text, "answered before it came");
    ck_assert_str_eq(items[2].why.text, "answered before it came");
    ck_assert(!items[1].status.fault);
    for (i32 o = 0; o < vx_model_signature(cpu)->outputs_count; o++)
        ck_assert(!memcmp(good->outputs[o], same->outputs[o],
                          (size_t)100 *
                              (size_t)vx_model_signature(cpu)->outputs[o].channels * 2));
    /* And the CPU engine has nothing to pin or import. */
    ck_assert_int_eq(vx_status_code(vx_engine_pin(vx_rig_engine, good, 4096, &why)),
                     VX_CODE_UNIMPLEMENTED);
    ck_assert_int_eq(
        vx_status_code(vx_engine_import(vx_rig_engine, client.handle, 1, &why, &memory)),
        VX_CODE_UNIMPLEMENTED);
    ck_assert_ptr_null(memory);
    vx_engine_unpin(vx_rig_engine, good);
    vx_free(good);
    vx_free(same);
    vx_engine_unload(vx_rig_engine, &cpu);
}
END_TEST

/* Bytes that are no handle are refused, and nothing stays open. */
START_TEST(handles_are_checked)
{
    static const struct {
        i64 at; /* of the handle; -1 = none */
        u8 value;
        size_t bytes;
        const char *said;
    } cases[] = {
        {0, 'x', 1, "cuIpcOpenMemHandle_v2"},
        {15, 'x', 1, "cuIpcOpenMemHandle_v2"},
        {VX_FAKE_IPC_PID + 7, 1, 1, "cuIpcOpenMemHandle_v2"},
        {VX_FAKE_IPC_FD + 2, 1, 1, "cuIpcOpenMemHandle_v2"},
        {VX_FAKE_IPC_BYTES + 5, 1, 1, "cuIpcOpenMemHandle_v2"},
        {VX_IPC_HANDLE_BYTES - 1, 1, 1, "cuIpcOpenMemHandle_v2"},
        {-1, 0, CLIENT_BYTES + 1, "has 67108864 bytes: expected at least 67108865"},
    };
    struct vx_why why = {{0}};
    void *memory = &why;
    if (cases[_i].at >= 0) client.handle[cases[_i].at] = cases[_i].value;
    ck_assert_int_eq(vx_status_code(vx_engine_import(vx_gpu_rig_engine, client.handle,
                                                     cases[_i].bytes, &why, &memory)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, cases[_i].said) != NULL, "%s", why.text);
    ck_assert_ptr_null(memory);
    ck_assert_int_eq(vx_fake_imported(), 0);
    ck_assert(!vx_engine_lost(vx_gpu_rig_engine, NULL));
}
END_TEST

/* Every call of an import, of a pin and of their ends fails once, in every way. */
START_TEST(a_failing_call_leaves_nothing_open)
{
    static const int codes[] = {1, 2, 201, 999, 700};
    struct vx_why why = {{0}};
    bool over = false;
    for (i64 nth = 1; !over; nth++) {
        ck_assert_int_lt(nth, 20);
        vx_fake_set(&(struct vx_fake_settings){.fail_call = nth, .fail_code = codes[_i]});
        vx_status imported = vx_engine_import(vx_gpu_rig_engine, client.handle, 4096,
                                              &why, (void **)&client.seen);
        bool lost = vx_engine_lost(vx_gpu_rig_engine, NULL);
        vx_status pinned =
            vx_engine_pin(vx_gpu_rig_engine, client.own, CLIENT_BYTES, &why);
        over = vx_fake_calls() < nth;
        ck_assert_int_eq(vx_fake_imported(), !imported.fault);
        ck_assert_int_eq(vx_fake_pinned(), !pinned.fault);
        if (codes[_i] == 2 && imported.fault)
            ck_assert_int_eq(vx_status_code(imported), VX_CODE_RESOURCE_EXHAUSTED);
        /* An "unknown" error about a client's memory is no error of the device. */
        if (codes[_i] == 999 && imported.fault && nth == 1) {
            ck_assert_int_eq(vx_status_code(imported), VX_CODE_INVALID_ARGUMENT);
            ck_assert(!lost);
        }
        vx_engine_release(vx_gpu_rig_engine, (void **)&client.seen);
        if (!pinned.fault) vx_engine_unpin(vx_gpu_rig_engine, client.own);
        ck_assert_int_eq(vx_fake_imported(), 0);
        ck_assert_int_eq(vx_fake_pinned(), 0);
        if (!vx_engine_lost(vx_gpu_rig_engine, NULL)) continue;
        vx_engine_unload(vx_gpu_rig_engine, &model);
        vx_fake_set(&(struct vx_fake_settings){0});
        vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
        load();
    }
}
END_TEST

/* The device is lost while regions are there: each is released once, without an error. */
START_TEST(a_lost_device_releases_nothing_twice)
{
    const struct vx_gpu_mix_pick pick = {.request = 3, .nameless = true};
    struct vx_why why = {{0}};
    struct moved moved;
    vx_gpu_mix_expect(&mix, model, 1u << 3);
    import();
    ck_assert(!vx_engine_pin(vx_gpu_rig_engine, client.own, CLIENT_BYTES, &why).fault);
    ck_assert(vx_engine_pin(vx_gpu_rig_engine, client.own + 4096, 1, &why).fault);
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, &pick, 1);
    move(&sent->items[0], 63, 0, &moved);
    vx_fake_set(&(struct vx_fake_settings){.lose_launch = 1 + _i});
    run(sent);
    ck_assert_int_eq(vx_status_code(sent->items[0].status), VX_CODE_UNAVAILABLE);
    ck_assert(vx_engine_lost(vx_gpu_rig_engine, &why));
    for (i32 o = 0; o < mix.signature->outputs_count; o++)
        sent->items[0].outputs[o] = moved.own[o];
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, true), 0);
    ck_assert_int_eq(vx_fake_imported(), 1);
    ck_assert_int_eq(vx_fake_pinned(), 1);
    vx_engine_release(vx_gpu_rig_engine, (void **)&client.seen);
    vx_engine_release(vx_gpu_rig_engine, (void **)&client.seen);
    vx_engine_unpin(vx_gpu_rig_engine, client.own);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_engine_close(&vx_gpu_rig_engine);
    ck_assert_int_eq(vx_fake_imported(), 0);
    ck_assert_int_eq(vx_fake_pinned(), 0);
    vx_fake_set(&(struct vx_fake_settings){0});
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    load();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_foreign");
    TCase *tcase = tcase_create("gpu_foreign");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, an_answer_is_the_same_wherever_it_lies, 0,
                        VX_TRIALS(3, 1));
    tcase_add_loop_test(tcase, coordinates_are_read_once, 0, 2);
    tcase_add_test(tcase, what_is_answered_already_is_not_run);
    tcase_add_test(tcase, on_a_cpu_too);
    tcase_add_loop_test(tcase, handles_are_checked, 0, 7);
    tcase_add_loop_test(tcase, a_failing_call_leaves_nothing_open, 0, 5);
    tcase_add_loop_test(tcase, a_lost_device_releases_nothing_twice, 0, 3);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
