/* The convolution as the compiler for AMD optimised it, with every kind of multiplication: whole
 * numbers give the reference's bits, under several schedules. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/kernel.h"
#include "tests/amd/rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 3
#define N     150 /* more than two tiles, the last of them not full */
#define CI    32
#define CO    48
#define V     27

static const struct row {
    const char *arch;
    i32 number; /* vx_caps.arch */
    enum vx_number type;
    i32 multiply; /* the seventh value of a tile */
} rows[] = {
    {"gfx90a", 90010, VX_NUMBER_F16, VX_MULTIPLY_MFMA},
    {"gfx90a", 90010, VX_NUMBER_F32, VX_MULTIPLY_MFMA},
    {"gfx942", 90402, VX_NUMBER_F16, VX_MULTIPLY_MFMA},
    {"gfx942", 90402, VX_NUMBER_BF16, VX_MULTIPLY_MFMA},
    {"gfx942", 90402, VX_NUMBER_TF32, VX_MULTIPLY_MFMA},
    {"gfx1100", 110000, VX_NUMBER_F16, VX_MULTIPLY_WMMA},
    {"gfx1100", 110000, VX_NUMBER_BF16, VX_MULTIPLY_WMMA},
    {"gfx1100", 110000, VX_NUMBER_F32, VX_MULTIPLY_FMA},
    {"gfx1200", 120000, VX_NUMBER_F16, VX_MULTIPLY_WMMA},
    {"gfx1200", 120000, VX_NUMBER_BF16, VX_MULTIPLY_WMMA},
};
#define ROWS (i32)(sizeof rows / sizeof rows[0])

static const struct vx_kernel_spec *spec;

/* A tile of 64 rows that fits: the first one that multiplies so. */
static const struct vx_tile *tile_of(const struct row *row)
{
    const struct vx_caps caps = {.arch = row->number,
                                 .processors = 4,
                                 .shared_block = 65536,
                                 .shared_processor = 65536};
    for (i32 i = 0; i < spec->tiles_count; i++) {
        const struct vx_tile *tile = &spec->tiles[i];
        if (tile->values[0] == 64 && tile->values[6] == row->multiply &&
            spec->fits(tile, row->type, &caps))
            return tile;
    }
    ck_abort_msg("no tile of 64 rows for %s, type %d", row->arch, row->type);
}

static struct amd_image compile(const struct row *row, const struct vx_tile *tile)
{
    char words[VX_TILE_VALUES_MAX + 1][40];
    const char *defines[VX_TILE_VALUES_MAX + 2] = {0};
    for (i32 i = 0; i < spec->macros_count; i++) {
        (void)snprintf(words[i], sizeof words[i], "-D%s=%d", spec->macros[i],
                       tile->values[i]);
        defines[i] = words[i];
    }
    (void)snprintf(words[spec->macros_count], sizeof words[0], "-DVX_TYPE=%d", row->type);
    defines[spec->macros_count] = words[spec->macros_count];
    return amd_rig_compile(
        &(struct amd_text){"kernels/06_conv_masked.cu", row->arch, defines});
}

/* --- numbers: small and whole, so that every sum is exact --- */

static void element_put(enum vx_number type, void *to, i64 at, i32 value)
{
    static const u16 halves[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000}; /* -2 .. 2 */
    static const u16 brains[] = {0xc000, 0xbf80, 0, 0x3f80, 0x4000};
    if (type == VX_NUMBER_F16) ((u16 *)to)[at] = halves[value + 2];
    if (type == VX_NUMBER_BF16) ((u16 *)to)[at] = brains[value + 2];
    if (vx_number_bytes(type) == 4) ((f32 *)to)[at] = (f32)value;
}

static void fill(enum vx_number type, void *to, i64 count, u32 seed)
{
    for (i64 i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        element_put(type, to, i, (i32)(seed >> 24) % 5 - 2);
    }
}

/* A row in three has each of the offsets, at random. */
static void neighbours(i32 nbr[N][V + 1], u32 masks[N])
{
    u32 seed = 99;
    for (i32 i = 0; i < N; i++) {
        masks[i] = 0;
        for (i32 v = 0; v <= V; v++) {
            seed = seed * 1664525u + 1013904223u;
            bool there = v < V && (v == V / 2 || seed >> 28 < 5);
            nbr[i][v] = there ? (i32)((seed >> 8) % N) : -1;
            if (there) masks[i] |= 1u << v;
        }
    }
}

START_TEST(test_conv)
{
    const struct row *row = &rows[_i];
    const struct vx_tile *tile = (spec = vx_kernel_find("conv_masked"), tile_of(row));
    const struct amd_image image = compile(row, tile);
    const size_t bytes = (size_t)vx_number_bytes(row->type);
    static u8 in[N * CI * 4], weight[V * CI * CO * 4], out[N * CO * 4];
    static i32 nbr[N][V + 1];
    u32 masks[N];
    f32 bias[CO];
    fill(row->type, in, N * CI, 7);
    fill(row->type, weight, V * CI * CO, 8);
    fill(VX_NUMBER_F32, bias, CO, 9);
    neighbours(nbr, masks);
    struct vx_conv_device_args args = {.n = N,
                                       .v = V,
                                       .words = 1,
                                       .nbr_stride = V + 1,
                                       .ci = CI,
                                       .co = CO,
                                       .in_stride = CI,
                                       .residual_stride = CO,
                                       .out_stride = CO,
                                       .groups = 1,
                                       .blocks = 4,
                                       .nbr = &nbr[0][0],
                                       .masks = masks,
                                       .in = in,
                                       .weight = weight,
                                       .bias = bias,
                                       .out = out};
    memset(out, 0xee, sizeof out);
    spec->ref(&args, row->type);
    for (i32 seed = 0; seed < SEEDS; seed++) {
        struct amd_rig rig;
        char settings[64];
        (void)snprintf(settings, sizeof settings, "arch=%s seed=%d", row->arch, seed);
        amd_rig_open(&rig, settings);
        struct vx_conv_device_args there = args;
        there.nbr = amd_rig_copy(&rig, nbr, sizeof nbr);
        there.masks = amd_rig_copy(&rig, masks, sizeof masks);
        there.in = amd_rig_copy(&rig, in, N * CI * bytes);
        there.weight = amd_rig_copy(&rig, weight, V * CI * CO * bytes);
        there.bias = amd_rig_copy(&rig, bias, sizeof bias);
        there.out = amd_rig_memory(&rig, N * CO * bytes);
        int code = amd_rig_run(
            &rig, &(struct amd_run){.image = &image,
                                    .kernel = spec->name,
                                    .args = &there,
                                    .grid = spec->grid(tile, &there),
                                    .threads = (u32)spec->threads(tile),
                                    .shared = (u32)spec->shared(tile, row->type)});
        ck_assert_msg(code == 0, "%s: %d: %s", row->arch, code, rig.why());
        ck_assert_msg(!memcmp(there.out, out, N * CO * bytes),
                      "%s, type %d, seed %d: other bits than the reference", row->arch,
                      row->type, seed);
        amd_rig_close(&rig);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("amd_conv");
    TCase *tcase = tcase_create("conv");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_conv, 0, ROWS);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
