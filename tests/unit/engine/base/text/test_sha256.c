/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/sha256.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* FIPS 180-4's examples, and lengths around the edge of a block (sha256sum's answers). */
static const struct {
    const char *text;
    i32 times;
    const char *hex;
} cases[] = {
    {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    {"a", 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
    {"a", 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
    {"a", 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
    {"a", 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
    {"a", 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
};

START_TEST(test_vectors)
{
    struct vx_sha256 sha;
    u8 digest[VX_SHA256_BYTES];
    char hex[VX_SHA256_HEX_BYTES];
    vx_sha256_init(&sha);
    for (i32 i = 0; i < cases[_i].times; i++)
        vx_sha256_add(&sha, cases[_i].text, strlen(cases[_i].text));
    vx_sha256_finish(&sha, digest);
    vx_sha256_hex(digest, hex);
    ck_assert_str_eq(hex, cases[_i].hex);
}
END_TEST

/* The hash of the whole is that of its pieces, however it is cut. */
START_TEST(test_pieces)
{
    u8 data[300], whole[VX_SHA256_BYTES], cut[VX_SHA256_BYTES];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (u8)(i * 7 + i / 64);
    struct vx_sha256 sha;
    vx_sha256_init(&sha);
    vx_sha256_add(&sha, data, sizeof data);
    vx_sha256_finish(&sha, whole);
    for (size_t piece = 1; piece < sizeof data; piece++) {
        vx_sha256_init(&sha);
        for (size_t at = 0; at < sizeof data; at += piece)
            vx_sha256_add(&sha, data + at,
                          sizeof data - at < piece ? sizeof data - at : piece);
        vx_sha256_finish(&sha, cut);
        ck_assert_mem_eq(whole, cut, sizeof whole);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sha256");
    TCase *tests = tcase_create("sha256");
    tcase_add_loop_test(tests, test_vectors, 0, (int)VX_COUNT(cases));
    tcase_add_test(tests, test_pieces);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
