/* The tuning tables in deploy/tune: measured with the kernels that are here.  A kernel whose code
 * changes voids its rows (the engine then uses the cost model); this says so before an H200 does.
 *
 * When the code changed and the binaries did not (voxeld compile --arch sm_90a --all gives the same
 * images), the new hash may be written into the table; else voxeld tune measures again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/text/sha256.h"
#include "engine/gpu/jit/jit_key.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE       "deploy/tune/nvidia-h200.tune"
#define DIGITS      12
#define FIELD_BYTES 64

static void hash_of(const char *source, char digits[DIGITS + 1])
{
    struct vx_jit_texts texts;
    struct vx_jit_closure closure;
    struct vx_why why = {""};
    u8 digest[VX_SHA256_BYTES];
    char hex[2 * VX_SHA256_BYTES + 1];
    ck_assert_msg(!vx_jit_texts_open(NULL, &why, &texts).fault, "%s", why.text);
    ck_assert_msg(!vx_jit_closure_build(&texts, source, &why, &closure).fault, "%s",
                  why.text);
    vx_jit_closure_hash(&closure, digest);
    vx_jit_texts_close(&texts);
    vx_sha256_hex(digest, hex);
    memcpy(digits, hex, DIGITS);
    digits[DIGITS] = 0;
}

START_TEST(test_rows_are_of_these_kernels)
{
    char masked[DIGITS + 1], pairs[DIGITS + 1], line[512];
    hash_of("06_conv_masked.cu", masked);
    hash_of("06_conv_pairs.cu", pairs);
    FILE *file = fopen(TABLE, "r");
    ck_assert_msg(file, "%s cannot be read", TABLE);
    i32 rows = 0;
    while (fgets(line, sizeof line, file)) {
        char hash[FIELD_BYTES], algorithm[FIELD_BYTES];
        if (sscanf(line, "%63s %*s %*s %*s %*s %*s %*s %63s", hash, algorithm) != 2 ||
            strlen(hash) != DIGITS)
            continue; /* the head */
        const char *wanted = strcmp(algorithm, "pairs_list") ? masked : pairs;
        ck_assert_msg(!strcmp(hash, wanted), "%s: expected the hash %s, got: %s", TABLE,
                      wanted, line);
        rows++;
    }
    fclose(file);
    ck_assert_int_gt(rows, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune_shipped");
    TCase *tests = tcase_create("tune_shipped");
    tcase_add_test(tests, test_rows_are_of_these_kernels);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
