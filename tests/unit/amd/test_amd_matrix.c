/* Each matrix instruction multiplies whole numbers as the definition says; operands that the
 * instruction would not accept, and a wrong lane map, are noticed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/faults.h"
#include "tests/amd/rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANES_MAX 64
#define FAILED    719

enum { CDNA2, CDNA3, RDNA3, RDNA4, ARCHS };
static const char *const archs[ARCHS] = {"gfx90a", "gfx942", "gfx1100", "gfx1200"};
static struct amd_image images[ARCHS];

/* How the registers of the lanes are filled, said once more, by lane groups. */
static const struct instruction {
    i32 arch;
    const char *kernel;
    u32 size, depth;
    u32 lanes, elements; /* of A in a lane */
    u32 bytes;           /* of an element */
    bool bf16, doubled;
} rows[] = {
    {CDNA2, "f16_16", 16, 16, 64, 4, 2, false, false},
    {CDNA2, "bf16_16", 16, 16, 64, 4, 2, true, false},
    {CDNA2, "f32_16", 16, 4, 64, 1, 4, false, false},
    {CDNA2, "f16_32", 32, 8, 64, 4, 2, false, false},
    {CDNA2, "bf16_32", 32, 8, 64, 4, 2, true, false},
    {CDNA3, "f16_16", 16, 16, 64, 4, 2, false, false},
    {CDNA3, "bf16_16", 16, 16, 64, 4, 2, true, false},
    {CDNA3, "f32_16", 16, 4, 64, 1, 4, false, false},
    {CDNA3, "f16_32", 32, 8, 64, 4, 2, false, false},
    {CDNA3, "bf16_32", 32, 8, 64, 4, 2, true, false},
    {CDNA3, "xf32_16", 16, 8, 64, 2, 4, false, false},
    {RDNA3, "f16_16", 16, 16, 32, 16, 2, false, true},
    {RDNA3, "bf16_16", 16, 16, 32, 16, 2, true, true},
    {RDNA4, "f16_16", 16, 16, 32, 8, 2, false, false},
    {RDNA4, "bf16_16", 16, 16, 32, 8, 2, true, false},
};
#define ROWS (i32)(sizeof rows / sizeof rows[0])

struct product {
    struct amd_rig rig;
    f32 a[32][16], b[16][32], c[32][32];
    void *ra, *rb; /* registers, lane after lane */
    f32 *rc;
    u32 absent;
};

/* Small whole numbers are exact in every type. */
static u32 bits_of(const struct instruction *it, f32 value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    if (it->bytes == 4) return bits;
    if (it->bf16) return bits >> 16;
    if (!(bits << 1)) return bits >> 16;
    return (bits >> 16 & 0x8000) |
           (((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023));
}

static void put(const struct instruction *it, void *registers, u32 index, f32 value)
{
    u32 bits = bits_of(it, value);
    memcpy((u8 *)registers + (size_t)index * it->bytes, &bits, it->bytes);
}

/* Lanes are in groups of `size`; each group has the next `elements` of k. */
static u32 first_k(const struct instruction *it, u32 lane)
{
    return it->doubled ? 0 : lane / it->size * it->elements;
}

static u32 row_of(const struct instruction *it, u32 lane, u32 e)
{
    if (it->size == 32) return (e / 4 * 2 + lane / 32) * 4 + e % 4;
    if (it->doubled) return 2 * e + (lane >= 16);
    return lane / 16 * (256 / it->lanes) + e;
}

static void product_open(struct product *p, const struct instruction *it)
{
    char settings[64];
    u32 n = it->lanes * it->elements, sums = it->size * it->size / it->lanes;
    memset(p, 0, sizeof *p);
    p->absent = LANES_MAX;
    (void)snprintf(settings, sizeof settings, "arch=%s seed=4", archs[it->arch]);
    amd_rig_open(&p->rig, settings);
    p->ra = amd_rig_memory(&p->rig, (size_t)n * it->bytes);
    p->rb = amd_rig_memory(&p->rig, (size_t)n * it->bytes);
    p->rc = amd_rig_memory(&p->rig, (size_t)it->size * it->size * sizeof(f32));
    for (u32 i = 0; i < it->size; i++)
        for (u32 k = 0; k < it->depth; k++) {
            p->a[i][k] = (f32)((i32)(i * 7 + k * 3) % 11 - 5);
            p->b[k][i] = (f32)((i32)(i * 5 + k * 13) % 9 - 4);
        }
    for (u32 lane = 0; lane < it->lanes; lane++) {
        for (u32 e = 0; e < it->elements; e++) {
            u32 k = first_k(it, lane) + e, index = lane * it->elements + e;
            put(it, p->ra, index, p->a[lane % it->size][k]);
            put(it, p->rb, index, p->b[k][lane % it->size]);
        }
        for (u32 e = 0; e < sums; e++) p->rc[lane * sums + e] = (f32)(lane + 100 * e);
    }
}

static int product_run(struct product *p, const struct instruction *it)
{
    struct amd_matrix_args args = {p->ra, p->rb, p->rc, p->absent, 0};
    return amd_rig_run(&p->rig, &(struct amd_run){.image = &images[it->arch],
                                                  .kernel = it->kernel,
                                                  .args = &args,
                                                  .threads = it->lanes});
}

static void product_close(struct product *p)
{
    amd_rig_free(&p->rig, p->ra);
    amd_rig_free(&p->rig, p->rb);
    amd_rig_free(&p->rig, p->rc);
    amd_rig_close(&p->rig);
}

/* Sums that are not A * B + C; `turned`: as if a lane held a row and not a column. */
static u32 wrong_sums(const struct product *p, const struct instruction *it, bool turned)
{
    u32 sums = it->size * it->size / it->lanes, wrong = 0;
    for (u32 lane = 0; lane < it->lanes; lane++) {
        for (u32 e = 0; e < sums; e++) {
            u32 i = row_of(it, lane, e), j = lane % it->size;
            f32 expected = (f32)(lane + 100 * e);
            for (u32 k = 0; k < it->depth; k++)
                expected += turned ? p->a[j][k] * p->b[k][i] : p->a[i][k] * p->b[k][j];
            wrong += p->rc[lane * sums + e] != expected;
        }
    }
    return wrong;
}

START_TEST(test_multiplies)
{
    const struct instruction *it = &rows[_i];
    struct product p;
    product_open(&p, it);
    ck_assert_int_eq(product_run(&p, it), 0);
    u32 wrong = wrong_sums(&p, it, false);
    ck_assert_msg(wrong == 0, "%s %s: %u sums are wrong", archs[it->arch], it->kernel,
                  wrong);
    ck_assert_uint_gt(wrong_sums(&p, it, true), it->size * it->size / 2);
    product_close(&p);
}
END_TEST

START_TEST(test_all_lanes)
{
    const struct instruction *it = &rows[_i];
    struct product p;
    product_open(&p, it);
    p.absent = it->lanes - 1;
    ck_assert_int_eq(product_run(&p, it), FAILED);
    char part[32];
    (void)snprintf(part, sizeof part, "%u of %u lanes are there", it->lanes - 1,
                   it->lanes);
    ck_assert_msg(strstr(p.rig.why(), part) != NULL, "\"%s\"", p.rig.why());
    product_close(&p);
}
END_TEST

START_TEST(test_lanes_that_do_not_repeat)
{
    for (i32 i = 0; i < ROWS; i++) {
        if (!rows[i].doubled) continue;
        struct product p;
        product_open(&p, &rows[i]);
        put(&rows[i], p.rb, (16 + 3) * 16 + 5, 9);
        ck_assert_int_eq(product_run(&p, &rows[i]), FAILED);
        const char *part = "element 5 of B differs between lanes 3 and 19";
        ck_assert_msg(strstr(p.rig.why(), part) != NULL, "\"%s\"", p.rig.why());
        product_close(&p);
    }
}
END_TEST

/* XF32 cuts what is below ten bits of fraction, F32 does not. */
START_TEST(test_cut)
{
    for (i32 i = 0; i < ROWS; i++) {
        const struct instruction *it = &rows[i];
        bool cut = !strcmp(it->kernel, "xf32_16");
        if (it->bytes != 4) continue;
        struct product p;
        product_open(&p, it);
        const f32 near = 1 + 0x1p-11f;
        u32 n = it->lanes * it->elements;
        for (u32 at = 0; at < n; at++) {
            put(it, p.ra, at, near);
            put(it, p.rb, at, 1);
        }
        memset(p.rc, 0, 256 * sizeof(f32));
        ck_assert_int_eq(product_run(&p, it), 0);
        ck_assert_float_eq(p.rc[17], (f32)it->depth * (cut ? 1 : near));
        product_close(&p);
    }
}
END_TEST

static void compile_all(void)
{
    for (i32 i = 0; i < ARCHS; i++)
        images[i] =
            amd_rig_compile(&(struct amd_text){"tests/amd/matrix.cu", archs[i], NULL});
}

int main(void)
{
    Suite *suite = suite_create("amd_matrix");
    TCase *tcase = tcase_create("matrix");
    tcase_set_timeout(tcase, 60);
    tcase_add_unchecked_fixture(tcase, compile_all, NULL);
    tcase_add_loop_test(tcase, test_multiplies, 0, ROWS);
    tcase_add_loop_test(tcase, test_all_lanes, 0, ROWS);
    tcase_add_test(tcase, test_lanes_that_do_not_repeat);
    tcase_add_test(tcase, test_cut);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
