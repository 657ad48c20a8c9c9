/* What layers took, in words: the text, and who of a batch gets it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/model/backend.h"
#include "engine/model/taken.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static void print(const void *context, u32 key, char text[VX_TAKEN_HOW_BYTES])
{
    snprintf(text, VX_TAKEN_HOW_BYTES, "%s%u", (const char *)context, key);
}
static const struct vx_taken_how how = {print, "way"};

START_TEST(equal_ways_stand_together)
{
    static const struct vx_taken_layer layers[] = {{"stem", 7}, {"a", 2},    {"b", 7},
                                                   {"c d", 2},  {"head", 0}, {"last", 7}};
    static const char *const texts[] = {
        "",
        "way7: stem",
        "way7: stem; way2: a",
        "way7: stem b; way2: a",
        "way7: stem b; way2: a c d",
        "way7: stem b; way2: a c d; way0: head",
        "way7: stem b last; way2: a c d; way0: head",
    };
    struct vx_taken taken;
    for (i32 count = 0; count <= (i32)VX_COUNT(layers); count++) {
        vx_taken_print(layers, count, &how, &taken);
        ck_assert_str_eq(taken.text, texts[count]);
    }
}
END_TEST

/* Whole names as long as they fit; the end then says that there are more. */
START_TEST(a_full_text_says_so)
{
    static struct vx_taken_layer layers[VX_LAYERS_MAX];
    static char names[VX_LAYERS_MAX][128];
    struct vx_taken taken;
    for (i32 ways = 1; ways <= VX_LAYERS_MAX; ways *= 32)
        for (int length = 1; length <= 127; length += 9) {
            for (i32 i = 0; i < VX_LAYERS_MAX; i++) {
                memset(names[i], 'x', (size_t)length);
                names[i][length] = 0;
                layers[i] = (struct vx_taken_layer){names[i], (u32)(i % ways)};
            }
            memset(&taken, 0x55, sizeof taken);
            vx_taken_print(layers, VX_LAYERS_MAX, &how, &taken);
            const size_t used = strnlen(taken.text, sizeof taken.text);
            ck_assert_uint_lt(used, sizeof taken.text);
            if (used + 160 < sizeof taken.text) { /* it fits as a whole */
                ck_assert_int_eq(length, 1);
                ck_assert_ptr_null(strstr(taken.text, "..."));
                continue;
            }
            ck_assert_str_eq(taken.text + used - 4, " ...");
            const char *space = taken.text + used - 4;
            while (space > taken.text && space[-1] == 'x') space--;
            const i64 last = taken.text + used - 4 - space;
            ck_assert_msg(last == 0 || last == length, "%d: %lld", length,
                          (long long)last);
        }
    /* Room for exactly these bytes, and one too few. */
    for (int more = 0; more < 2; more++) {
        const int first = 120, count = 34;
        for (i32 i = 0; i < count; i++) {
            memset(names[i], 'y', sizeof names[i]);
            names[i][first] = 0;
            layers[i] = (struct vx_taken_layer){names[i], 0};
        }
        /* "way0:" and each name behind a space, with the room for " ..." and the NUL */
        const int left = VX_TAKEN_BYTES - 5 - 5 - (count - 1) * (first + 1) - 1;
        ck_assert(left > 0 && left + 1 < 128);
        names[count - 1][left + more] = 0;
        vx_taken_print(layers, count, &how, &taken);
        ck_assert_int_eq(strstr(taken.text, " ...") != NULL, more);
    }
}
END_TEST

/* Items that want a text share equal ones; a fifth different one has no room. */
START_TEST(a_batch_has_a_few_texts)
{
    static struct vx_taken room[VX_TAKEN_MAX];
    struct vx_item items[8] = {{.says_taken = false}};
    struct vx_batch batch = {.items = items, .items_count = 8};
    char text[16];
    for (int i = 1; i < 8; i++) items[i].says_taken = true;
    vx_item_say_taken(&batch, &items[1], "nowhere to write it");
    ck_assert_int_eq(items[1].taken, 0);
    batch.taken = room;
    vx_item_say_taken(&batch, &items[0], "not wanted");
    ck_assert_int_eq(items[0].taken + batch.taken_count, 0);
    for (int i = 1; i < 8; i++) {
        snprintf(text, sizeof text, "text %d", i / 2 * 2); /* 0 2 2 4 4 6 6 */
        vx_item_say_taken(&batch, &items[i], text);
        ck_assert_int_eq(items[i].taken, i / 2 + 1);
        ck_assert_str_eq(room[items[i].taken - 1].text, text);
    }
    ck_assert_int_eq(batch.taken_count, VX_TAKEN_MAX);
    vx_item_say_taken(&batch, &items[7], "a fifth");
    ck_assert_int_eq(items[7].taken, 0);
    vx_item_say_taken(&batch, &items[7], "text 4"); /* it ran again */
    ck_assert_int_eq(items[7].taken, 3);
    ck_assert_int_eq(batch.taken_count, VX_TAKEN_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("taken");
    TCase *tests = tcase_create("taken");
    tcase_add_test(tests, equal_ways_stand_together);
    tcase_add_test(tests, a_full_text_says_so);
    tcase_add_test(tests, a_batch_has_a_few_texts);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
