/* Layers in FP8 on the CPU device: the definition in double, each kind of convolution beside
 * itself on numbers that are rounded already, memory, and company.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/model/model.h"
#include "kernels/e4m3.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FP8  ",\"precision\":\"fp16\",\"fp8\":{\"data\":\"fp8.npz\",\"nmse_max\":0.5}"
#define HEAD "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":3}},\"layers\":["

enum { CI = 3, CO = 7, V_MOST = 27, N = 300 };

/* A weight (Co, V, Ci) in a file of F32; a norm behind it; what they are folded, in f32. */
struct weights {
    i32 v;
    f32 file[CO * V_MOST * CI], bias[CO];
    f32 gamma[CO], beta[CO], mean[CO], var[CO];
    f32 folded[V_MOST][CI][CO], rounded[V_MOST][CI][CO], shift[CO];
};

static f32 column_scale(const struct weights *w, i32 co)
{
    f32 most = 0;
    for (i32 v = 0; v < w->v; v++)
        for (i32 ci = 0; ci < CI; ci++) most = fmaxf(most, fabsf(w->folded[v][ci][co]));
    return vx_e4m3_scale(most);
}

static void weights_make(struct weights *w, i32 v_count, bool norm)
{
    struct vx_test_random random = {77};
    memset(w, 0, sizeof *w);
    w->v = v_count;
    vx_test_fill(&random, w->file, VX_COUNT(w->file), -1, 1);
    vx_test_fill(&random, w->bias, CO, -1, 1);
    vx_test_fill(&random, w->gamma, CO, -3, 3);
    vx_test_fill(&random, w->beta, CO, -1, 1);
    vx_test_fill(&random, w->mean, CO, -1, 1);
    vx_test_fill(&random, w->var, CO, 0.25f, 2);
    for (i32 co = 0; co < CO; co++) {
        f64 scale = norm ? w->gamma[co] / sqrt((f64)w->var[co] + 1e-5) : 1;
        w->shift[co] =
            norm ? (f32)(w->bias[co] * scale + (w->beta[co] - w->mean[co] * scale))
                 : w->bias[co];
        for (i32 v = 0; v < v_count; v++)
            for (i32 ci = 0; ci < CI; ci++)
                w->folded[v][ci][co] =
                    (f32)(w->file[(co * v_count + v) * CI + ci] * scale);
        const f32 t = column_scale(w, co);
        for (i32 v = 0; v < v_count; v++)
            for (i32 ci = 0; ci < CI; ci++)
                w->rounded[v][ci][co] = t * vx_e4m3_round(w->folded[v][ci][co] / t);
    }
}

static void model_write(const struct weights *w, bool norm, const char *json)
{
    const i64 k = w->v == 1 ? 1 : 3;
    const struct vx_test_tensor tensors[] = {
        {"c.weight", "F32", {CO, k, k, k, CI}, 5, w->file},
        {"c.bias", "F32", {CO}, 1, w->bias},
        {"b.weight", "F32", {CO}, 1, w->gamma},
        {"b.bias", "F32", {CO}, 1, w->beta},
        {"b.running_mean", "F32", {CO}, 1, w->mean},
        {"b.running_var", "F32", {CO}, 1, w->var},
    };
    vx_test_write_model(vx_rig_root, 1, json, tensors, norm ? 6 : 2);
}

/* The row of a voxel, or -1. */
static i64 find(const struct vx_rig_request *request, const i32 voxel[4])
{
    for (i64 i = 0; i < request->item.voxels; i++)
        if (!memcmp(request->coords + 4 * i, voxel, 4 * sizeof *voxel)) return i;
    return -1;
}

#define SCALE 0.03125f

/* y[row][co] as engine/README.md defines it; *size: the sum of |products|. */
static f64 definition(const struct weights *w, const struct vx_rig_request *request,
                      i64 row, i32 co, f64 *size)
{
    f64 y = w->shift[co];
    *size = fabs(y);
    for (i32 v = 0; v < w->v; v++) {
        i32 voxel[4];
        memcpy(voxel, request->coords + 4 * row, sizeof voxel);
        if (w->v > 1)
            voxel[1] += v / 9 - 1, voxel[2] += v / 3 % 3 - 1, voxel[3] += v % 3 - 1;
        const i64 from = find(request, voxel);
        for (i32 ci = 0; from >= 0 && ci < CI; ci++) {
            const f64 x = SCALE * vx_e4m3_round(request->feats[from * CI + ci] / SCALE);
            y += x * w->rounded[v][ci][co];
            *size += fabs(x * w->rounded[v][ci][co]);
        }
    }
    return y;
}

static const char *const definitions[] = {
    /* a kernel with a norm folded in and an activation */
    HEAD "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":7,"
         "\"kernel\":3,\"layout\":\"oxyzi\",\"fp8_scale\":0.03125},"
         "{\"name\":\"b\",\"op\":\"batch_norm\",\"input\":\"c\"},"
         "{\"name\":\"y\",\"op\":\"relu\",\"input\":\"b\"}],"
         "\"outputs\":[{\"layer\":\"y\"}]" FP8 "}",
    /* one offset, which is launched as a linear layer */
    HEAD "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":7,"
         "\"kernel\":1,\"layout\":\"oxyzi\",\"fp8_scale\":0.03125},"
         "{\"name\":\"y\",\"op\":\"relu\",\"input\":\"c\"}],"
         "\"outputs\":[{\"layer\":\"y\"}]" FP8 "}",
};

/* Sums of V Ci + 1 terms in f32, in any order, and the rounding of the shift. */
START_TEST(the_definition_in_double)
{
    static struct weights w;
    const bool norm = _i == 0;
    weights_make(&w, norm ? 27 : 1, norm);
    model_write(&w, norm, definitions[_i]);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *request = vx_rig_request(3, N, 4, VX_DTYPE_F32);
    vx_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    f64 moved = 0;
    for (i64 row = 0; row < N; row++)
        for (i32 co = 0; co < CO; co++) {
            f64 size, y = definition(&w, request, row, co, &size);
            const f64 got = (f64)request->outputs[0][row * CO + co];
            const f64 bound = (w.v * CI + 3) * 0x1p-24 * size;
            if (fabs(got - fmax(y, 0)) > bound)
                ck_abort_msg("row %d, channel %d: expected %.9g, got %.9g, bound %g",
                             (int)row, co, fmax(y, 0), got, bound);
            moved = fmax(moved, fabs(y));
        }
    ck_assert(moved > 1);
    vx_free(request);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* A network of the other kinds of convolutions, each with a place for its scale. */
static const char kinds[] = HEAD
    "{\"name\":\"d\",\"op\":\"sparse_conv\",\"input\":\"feats\",\"channels\":3,"
    "\"kernel\":3,\"stride\":2,\"rule\":\"floor\",\"layout\":\"vio\"%s},"
    "{\"name\":\"u\",\"op\":\"inverse_conv\",\"input\":\"d\",\"channels\":2,\"of\":\"d\","
    "\"layout\":\"vio\"%s},"
    "{\"name\":\"t\",\"op\":\"transposed_conv\",\"input\":\"d\",\"channels\":2,"
    "\"kernel\":2,\"stride\":2,\"onto\":\"feats\",\"layout\":\"vio\"%s},"
    "{\"name\":\"j\",\"op\":\"concat\",\"inputs\":[\"u\",\"t\"]},"
    "{\"name\":\"y\",\"op\":\"relu\",\"input\":\"j\"}],"
    "\"outputs\":[{\"layer\":\"y\"}],\"precision\":\"fp16\"%s}";
enum { KINDS = 3 };

/* Weights of which each is 0, 1 or 2, or their negatives: sums are integers over 64, exact,
 * and no larger than e4m3 holds of them while few are not 0. */
static void write_small(const char *json)
{
    static f32 d[27 * 3 * 3], u[27 * 3 * 2], t[8 * 3 * 2];
    static const f32 bias[3] = {0};
    struct vx_test_random random = {9};
    f32 *const all[] = {d, u, t};
    const size_t counts[] = {VX_COUNT(d), VX_COUNT(u), VX_COUNT(t)};
    for (size_t a = 0; a < 3; a++)
        for (size_t e = 0; e < counts[a]; e++)
            all[a][e] = vx_test_next(&random) % 12
                            ? 0.0f
                            : (f32)(i32)(vx_test_next(&random) % 5) - 2;
    const struct vx_test_tensor tensors[] = {
        {"d.weight", "F16", {27, 3, 3}, 3, d}, {"d.bias", "F16", {3}, 1, bias},
        {"u.weight", "F16", {27, 3, 2}, 3, u}, {"u.bias", "F16", {2}, 1, bias},
        {"t.weight", "F16", {8, 3, 2}, 3, t},  {"t.bias", "F16", {2}, 1, bias}};
    vx_test_write_model(vx_rig_root, 1, json, tensors, VX_COUNT(tensors));
}

/* A number of e4m3 / 64 that a few sums leave one: 0, 1 or -1 of a unit of 1/64. */
static void small_feats(struct vx_rig_request *request)
{
    struct vx_test_random random = {4};
    for (i64 e = 0; e < request->item.voxels * VX_RIG_CHANNELS; e++)
        request->feats[e] = (f32)((i32)(vx_test_next(&random) % 3) - 1) / 64;
}

/* Runs the network in which `scale` is that of the layers of `which`, a bit each. */
static void kinds_run(u32 which, const char *scale, struct vx_rig_request *request)
{
    char json[2048], key[KINDS][64] = {""};
    for (u32 k = 0; k < KINDS; k++)
        if (which >> k & 1)
            (void)snprintf(key[k], sizeof key[k], ",\"fp8_scale\":%s", scale);
    (void)snprintf(json, sizeof json, kinds, key[0], key[1], key[2],
                   which ? ",\"fp8\":{\"data\":\"fp8.npz\",\"nmse_max\":0.5}" : "");
    write_small(json);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    memset(request->outputs[0], 0, sizeof request->outputs[0]);
    vx_rig_run(model, &request->item);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    vx_engine_unload(vx_rig_engine, &model);
}

/* Numbers that e4m3 holds are left as they are, bit for bit; with a scale that cuts them off
 * the answer is another, whichever layer has it. */
START_TEST(each_kind_of_convolution)
{
    struct vx_rig_request *request = vx_rig_request(3, N, 4, VX_DTYPE_F32);
    static f32 expected[N * 4];
    f32 most = 0;
    small_feats(request);
    kinds_run(0, "", request);
    memcpy(expected, request->outputs[0], sizeof expected);
    for (size_t e = 0; e < VX_COUNT(expected); e++) most = fmaxf(most, expected[e]);
    ck_assert(most > 0);
    for (u32 which = 1; which < 1u << KINDS; which++) {
        kinds_run(which, "0.015625", request);
        ck_assert_mem_eq(request->outputs[0], expected, sizeof expected);
        kinds_run(which, "9.094947017729282e-13", request); /* 2^-40 */
        ck_assert(memcmp(request->outputs[0], expected, sizeof expected) != 0);
    }
    vx_free(request);
}
END_TEST

/* The same request alone and behind another of a batch, with rows of a concat as input. */
START_TEST(bits_do_not_depend_on_company)
{
    static const char json[] =
        HEAD "{\"name\":\"a\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":5,"
             "\"kernel\":3,\"layout\":\"oxyzi\",\"fp8_scale\":0.0625},"
             "{\"name\":\"b\",\"op\":\"subm_conv\",\"input\":\"a\",\"channels\":6,"
             "\"kernel\":3,\"layout\":\"oxyzi\",\"fp8_scale\":0.125},"
             "{\"name\":\"j\",\"op\":\"concat\",\"inputs\":[\"a\",\"b\"]},"
             "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"j\",\"channels\":4,"
             "\"kernel\":1,\"layout\":\"oxyzi\",\"fp8_scale\":0.25}],"
             "\"outputs\":[{\"layer\":\"y\"}]" FP8 "}";
    vx_rig_write_model(vx_rig_root, json, 6);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_rig_request *requests[2] = {vx_rig_request(1, 200, 4, VX_DTYPE_F32),
                                          vx_rig_request(2, N, 4, VX_DTYPE_F32)};
    static f32 alone[N * 4];
    vx_rig_run(model, &requests[1]->item);
    memcpy(alone, requests[1]->outputs[0], sizeof alone);
    memset(requests[1]->outputs[0], 0, sizeof alone);
    struct vx_item items[2] = {requests[0]->item, requests[1]->item};
    struct vx_batch batch = {.items = items, .items_count = 2};
    vx_engine_run(vx_rig_engine, model, &batch);
    ck_assert(!items[0].status.fault && !items[1].status.fault);
    ck_assert_mem_eq(requests[1]->outputs[0], alone, sizeof alone);
    vx_free(requests[0]);
    vx_free(requests[1]);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* An input that is rounded has rows of its own, beside what it is read from and written to. */
START_TEST(the_plan_counts_the_rounded_input)
{
    static const char form[] =
        HEAD "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":7,"
             "\"kernel\":3,\"layout\":\"oxyzi\"%s}],"
             "\"outputs\":[{\"layer\":\"c\"}],\"precision\":\"fp16\"%s}";
    char json[1024];
    i64 channels[2];
    for (int fp8 = 0; fp8 < 2; fp8++) {
        struct vx_why why = {{0}};
        struct vx_model *model;
        (void)snprintf(json, sizeof json, form, fp8 ? ",\"fp8_scale\":1" : "",
                       fp8 ? ",\"fp8\":{\"data\":\"a\",\"nmse_max\":1}" : "");
        vx_rig_write_model(vx_rig_root, json, 1);
        const struct vx_model_source source = {.directory = vx_rig_root, .version = 1};
        ck_assert_msg(!vx_model_open(&source, &why, &model).fault, "%s", why.text);
        channels[fp8] = model->plan->channels[0];
        ck_assert_int_eq(model->plan->launches[0].rounded, fp8 ? 2 : 0);
        vx_model_close(&model);
    }
    ck_assert_int_eq(channels[0], 3 + 7);
    ck_assert_int_eq(channels[1], 3 + 7 + 3);
}
END_TEST

START_TEST(weights_that_fp8_cannot_have)
{
    static struct weights w;
    struct vx_why why = {{0}};
    struct vx_model *model;
    const struct vx_model_source source = {.directory = vx_rig_root, .version = 1};
    weights_make(&w, 1, false);
    w.file[4] = NAN;
    model_write(&w, false, definitions[1]);
    vx_status status = vx_model_open(&source, &why, &model);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, "tensor \"c.weight\" of layer \"c\": expected finite "
                                   "weights for \"fp8_scale\", with the norm folded in, "
                                   "got nan") != NULL,
                  "%s", why.text);
    char json[1024];
    (void)snprintf(json, sizeof json, "%s", definitions[1]);
    memcpy(strstr(json, "\"fp16\""), "\"auto\"", 6); /* F32 in the file is tf32 */
    w.file[4] = 1;
    model_write(&w, false, json);
    status = vx_model_open(&source, &why, &model);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, "\"precision\": expected \"fp16\" or \"bf16\" with "
                                   "layers that have \"fp8_scale\", got \"auto\", which "
                                   "is tf32 for these weights") != NULL,
                  "%s", why.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_fp8");
    TCase *tcase = tcase_create("engine_fp8");
    tcase_add_checked_fixture(tcase, vx_rig_set_up, vx_rig_tear_down);
    tcase_add_loop_test(tcase, the_definition_in_double, 0, VX_COUNT(definitions));
    tcase_add_test(tcase, each_kind_of_convolution);
    tcase_add_test(tcase, bits_do_not_depend_on_company);
    tcase_add_test(tcase, the_plan_counts_the_rounded_input);
    tcase_add_test(tcase, weights_that_fp8_cannot_have);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
