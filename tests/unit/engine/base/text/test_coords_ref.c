/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/text/coords_ref.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct vx_coords_ref_key key = {{0x0123456789abcdef, 42, 7777777, 1}};

/* SplitMix64. */
static u64 next(u64 *seed)
{
    u64 z = *seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static int compare(const void *a, const void *b)
{
    const struct vx_coords_ref *x = a, *y = b;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    return x->high < y->high ? -1 : x->high > y->high;
}

/* All differ, in each half alone: two halves of a million names agree by chance once in ten
 * million runs, and the keys of this test do not change. */
static void ck_all_differ(struct vx_coords_ref *names, size_t count)
{
    for (int half = 0; half < 2; half++) {
        qsort(names, count, sizeof *names, compare);
        for (size_t i = 1; i < count; i++)
            if (names[i].low == names[i - 1].low)
                ck_abort_msg("two of %zu names share a half", count);
        for (size_t i = 0; i < count; i++)
            names[i] = (struct vx_coords_ref){names[i].high, names[i].low};
    }
}

START_TEST(test_same_bytes)
{
    enum { N = 1000 };
    static i32 coords[N * 4];
    static u8 moved[sizeof coords + 64];
    u64 seed = 1;
    for (i32 i = 0; i < N * 4; i++) coords[i] = (i32)(next(&seed) % 256);
    const struct vx_coords_ref name = vx_coords_ref_of(&key, coords, 4, N);
    ck_assert(vx_coords_ref_there(name));
    for (size_t shift = 0; shift < 64; shift += 4) {
        memset(moved, (int)shift + 1, sizeof moved);
        memcpy(moved + shift, coords, sizeof coords);
        ck_assert(vx_coords_ref_equal(
            vx_coords_ref_of(&key, (const i32 *)(const void *)(moved + shift), 4, N),
            name));
    }
}
END_TEST

/* Every int of a cloud changed in one bit, two rows swapped, one row more and less, other
 * columns, another key: all hashes differ. */
START_TEST(test_every_change)
{
    enum { N = 37, INTS = N * 4 };
    i32 coords[INTS + 12] = {0};
    struct vx_coords_ref names[INTS * 32 + N * N + 16];
    size_t count = 0;
    u64 seed = 2;
    for (i32 i = 0; i < INTS; i++) coords[i] = (i32)(next(&seed) % 64);
    for (i32 i = 0; i < N; i++) coords[i * 4 + 1] = i; /* rows differ */
    names[count++] = vx_coords_ref_of(&key, coords, 4, N);
    for (i32 i = 0; i < INTS * 32; i++) {
        coords[i / 32] = (i32)((u32)coords[i / 32] ^ UINT32_C(1) << (i % 32));
        names[count++] = vx_coords_ref_of(&key, coords, 4, N);
        coords[i / 32] = (i32)((u32)coords[i / 32] ^ UINT32_C(1) << (i % 32));
    }
    for (i32 i = 0; i < N; i++)
        for (i32 j = 0; j < i; j++) {
            i32 turned[INTS];
            memcpy(turned, coords, sizeof turned);
            memcpy(turned + i * 4, coords + j * 4, 16);
            memcpy(turned + j * 4, coords + i * 4, 16);
            names[count++] = vx_coords_ref_of(&key, turned, 4, N);
        }
    names[count++] = vx_coords_ref_of(&key, coords, 4, N - 1);
    names[count++] = vx_coords_ref_of(&key, coords, 4, N + 1); /* a row of zeros more */
    names[count++] = vx_coords_ref_of(&key, coords, 3, N);
    names[count++] = vx_coords_ref_of(&key, coords, 2, N * 2); /* the same bytes */
    names[count++] = vx_coords_ref_of(&key, coords, 1, INTS);
    for (int i = 0; i < 4; i++) {
        struct vx_coords_ref_key other = key;
        other.words[i] ^= 1;
        names[count++] = vx_coords_ref_of(&other, coords, 4, N);
    }
    ck_assert_uint_le(count, VX_COUNT(names));
    ck_all_differ(names, count);
}
END_TEST

/* Every length of the tail, with zeros and with other numbers, in memory that ends where the tail
 * does. */
START_TEST(test_tails)
{
    struct vx_coords_ref names[2 * 4 * 81];
    size_t count = 0;
    for (i32 columns = 1; columns <= 4; columns++)
        for (i64 n = 0; n <= 80; n++) {
            size_t ints = (size_t)(n * columns);
            i32 *coords = vx_alloc_zero(ints ? ints * sizeof *coords : 1);
            names[count++] = vx_coords_ref_of(&key, coords, columns, n);
            if (!ints) {
                vx_free(coords);
                continue;
            }
            coords[ints - 1] = 1;
            names[count++] = vx_coords_ref_of(&key, coords, columns, n);
            vx_free(coords);
        }
    ck_all_differ(names, count);
    ck_assert(vx_coords_ref_equal(vx_coords_ref_of(&key, NULL, 4, 0),
                                  vx_coords_ref_of(&key, (i32[]){1}, 4, 0)));
}
END_TEST

START_TEST(test_avalanche)
{
    enum { N = 24, FLIPS = 1000 };
    i32 coords[N * 4];
    i32 flipped[128] = {0};
    u64 seed = 3;
    for (i32 flip = 0; flip < FLIPS; flip++) {
        for (i32 i = 0; i < N * 4; i++) coords[i] = (i32)(next(&seed) % 128) - 64;
        struct vx_coords_ref a = vx_coords_ref_of(&key, coords, 4, N);
        u64 bit = next(&seed) % (sizeof coords * 8);
        coords[bit / 32] = (i32)((u32)coords[bit / 32] ^ UINT32_C(1) << (bit % 32));
        struct vx_coords_ref b = vx_coords_ref_of(&key, coords, 4, N);
        for (i32 i = 0; i < 64; i++) {
            flipped[i] += (i32)((a.low ^ b.low) >> i & 1);
            flipped[64 + i] += (i32)((a.high ^ b.high) >> i & 1);
        }
    }
    for (i32 i = 0; i < 128; i++)
        if (flipped[i] < FLIPS * 3 / 10 || flipped[i] > FLIPS * 7 / 10)
            ck_abort_msg("bit %d flips %d times in %d", i, flipped[i], FLIPS);
}
END_TEST

/* The same for the bits of the key: a hash reveals nothing about it. */
START_TEST(test_avalanche_of_the_key)
{
    static const i32 coords[] = {0, 1, 2, 3, 0, 1, 2, 4};
    i32 flipped[128] = {0};
    u64 seed = 4;
    for (i32 flip = 0; flip < 1000; flip++) {
        struct vx_coords_ref_key one;
        for (int i = 0; i < 4; i++) one.words[i] = next(&seed);
        struct vx_coords_ref a = vx_coords_ref_of(&one, coords, 4, 2);
        u64 bit = next(&seed) % 256;
        one.words[bit / 64] ^= UINT64_C(1) << (bit % 64);
        struct vx_coords_ref b = vx_coords_ref_of(&one, coords, 4, 2);
        for (i32 i = 0; i < 64; i++) {
            flipped[i] += (i32)((a.low ^ b.low) >> i & 1);
            flipped[64 + i] += (i32)((a.high ^ b.high) >> i & 1);
        }
    }
    for (i32 i = 0; i < 128; i++)
        if (flipped[i] < 300 || flipped[i] > 700)
            ck_abort_msg("bit %d flips %d times in 1000", i, flipped[i]);
}
END_TEST

/* A million clouds with the structure of real ones: voxels of a grid, pairs, lines, two words that
 * cancel. */
START_TEST(test_structured_clouds)
{
    enum { COUNT = 1000000, N = 31 };
    struct vx_coords_ref *names = vx_alloc(COUNT * sizeof *names);
    size_t count = 0;
    i32 coords[N * 4];
    for (i32 i = 0; i < 400000; i++) {
        const i32 point[] = {0, i % 80 - 40, i / 80 % 80 - 40, i / 6400 - 40};
        names[count++] = vx_coords_ref_of(&key, point, 4, 1);
    }
    for (i32 i = 0; i < 300000; i++) {
        const i32 pair[] = {0, 0, i % 1000, 0, 0, i / 1000 + 1, 0, 0};
        names[count++] = vx_coords_ref_of(&key, pair, 4, 2);
    }
    for (i32 i = 0; i < 300000; i++) {
        i32 step = i % 100 + 1, sample = i / 100 % 100, n = 2 + i / 10000;
        ck_assert_int_le(n, N);
        for (i32 j = 0; j < n; j++)
            memcpy(coords + j * 4, (i32[]){sample, j * step, j * step, -j * step}, 16);
        names[count++] = vx_coords_ref_of(&key, coords, 4, n);
    }
    ck_assert_uint_eq(count, COUNT);
    /* Hash tables use the lowest bits alone: 122 hashes a chain on average, and none has
     * twice as many (11 standard deviations). */
    static i32 chains[8192];
    for (size_t i = 0; i < count; i++) chains[names[i].low % 8192]++;
    for (size_t i = 0; i < 8192; i++) ck_assert_int_lt(chains[i], 244);
    ck_all_differ(names, count);
    vx_free(names);
}
END_TEST

/* A factor that is zero hides its partner and nothing else; only the key makes it possible. */
START_TEST(test_zero_factors)
{
    struct vx_coords_ref names[4 * 64];
    size_t count = 0;
    for (int word = 0; word < 4; word++)
        for (i32 bit = 0; bit < 64; bit++) {
            u64 block[16] = {0};
            block[4] = UINT64_C(1) << bit; /* before the zero, in the same lane */
            block[word % 2] = key.words[word];
            block[8 + word % 2] = key.words[word];
            block[9 - word % 2] = UINT64_C(1) << bit; /* beside it */
            names[count++] =
                vx_coords_ref_of(&key, (const i32 *)(const void *)block, 4, 8);
        }
    ck_all_differ(names, count);
}
END_TEST

START_TEST(test_text)
{
    char text[VX_COORDS_REF_TEXT_BYTES + 2];
    struct vx_coords_ref back;
    u64 seed = 5;
    for (int i = 0; i < 1000; i++) {
        struct vx_coords_ref name = {next(&seed) >> (i % 64), i % 3 ? next(&seed) : 0};
        if (!vx_coords_ref_there(name)) continue;
        vx_coords_ref_print(name, text);
        ck_assert_uint_eq(strlen(text), 32);
        ck_assert_uint_eq(strspn(text, "0123456789abcdef"), 32);
        ck_assert(vx_coords_ref_parse(text, &back));
        ck_assert(vx_coords_ref_equal(name, back));
    }
    vx_coords_ref_print((struct vx_coords_ref){0x0123456789abcdef, 0xf}, text);
    ck_assert_str_eq(text, "000000000000000f0123456789abcdef");
    static const char *const bad[] = {
        "",
        "0",
        "000000000000000f0123456789abcde",
        "000000000000000f0123456789abcdef0",
        "000000000000000F0123456789abcdef",
        "000000000000000f0123456789ABCDEF",
        "00000000000000000000000000000000",
        "000000000000000g0123456789abcdef",
        "000000000000000 0123456789abcdef",
        " 00000000000000f0123456789abcdef",
        "0x0000000000000f0123456789abcdef",
        "000000000000000f0123456789abcde\n",
        "000000000000000f0123456789abc\xc3\xa9",
    };
    for (size_t i = 0; i < VX_COUNT(bad); i++)
        ck_assert_msg(!vx_coords_ref_parse(bad[i], &back), "%s", bad[i]);
}
END_TEST

START_TEST(test_short)
{
    char text[VX_COORDS_REF_SHORT_BYTES];
    vx_coords_ref_print_short((struct vx_coords_ref){5, 0x9f3a456789abcdef}, text);
    ck_assert_str_eq(text, "9f3a...");
}
END_TEST

/* Each owner has a mask, which nobody knows without the key; on and off again. */
START_TEST(test_mask)
{
    static const char *const owners[] = {"a", "b", "aa", "a b", "a "};
    struct vx_coords_ref_key other = key;
    other.words[0]++;
    struct vx_coords_ref masks[2 * VX_COUNT(owners)];
    for (size_t i = 0; i < VX_COUNT(owners); i++) {
        masks[2 * i] = vx_coords_ref_mask(&key, owners[i]);
        masks[2 * i + 1] = vx_coords_ref_mask(&other, owners[i]);
    }
    ck_all_differ(masks, VX_COUNT(masks));
    const struct vx_coords_ref name = {3, 4}, none = {0, 0}, mask = masks[0];
    ck_assert(!vx_coords_ref_there(vx_coords_ref_mask(&key, "")));
    ck_assert(!vx_coords_ref_equal(vx_coords_ref_masked(name, mask), name));
    ck_assert(vx_coords_ref_equal(
        vx_coords_ref_masked(vx_coords_ref_masked(name, mask), mask), name));
    ck_assert(!vx_coords_ref_there(vx_coords_ref_masked(none, mask)));
}
END_TEST

START_TEST(test_key_make)
{
    struct vx_coords_ref_key a, b;
    static const i32 coords[4];
    vx_coords_ref_key_make(&a);
    vx_coords_ref_key_make(&b);
    ck_assert(memcmp(&a, &b, sizeof a) != 0);
    ck_assert(!vx_coords_ref_equal(vx_coords_ref_of(&a, coords, 4, 1),
                                   vx_coords_ref_of(&b, coords, 4, 1)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("content");
    TCase *tests = tcase_create("content");
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, test_same_bytes);
    tcase_add_test(tests, test_short);
    tcase_add_test(tests, test_mask);
    tcase_add_test(tests, test_every_change);
    tcase_add_test(tests, test_tails);
    tcase_add_test(tests, test_avalanche);
    tcase_add_test(tests, test_avalanche_of_the_key);
    tcase_add_test(tests, test_structured_clouds);
    tcase_add_test(tests, test_zero_factors);
    tcase_add_test(tests, test_text);
    tcase_add_test(tests, test_key_make);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
