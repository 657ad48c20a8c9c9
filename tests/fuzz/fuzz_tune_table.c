/* Any bytes as a tuning table: no crash; what is refused changes nothing and says why; what
 * is accepted is written and read back as the same rows.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/tune/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

static const char header[] = "voxeld-tune 2 fake\n";

static struct vx_tune_table *table_open(void)
{
    struct vx_tune_table *table;
    struct vx_why why;
    VX_ASSERT(!vx_tune_table_open("fake", &why, &table).fault);
    return table;
}

static void check_round_trip(const struct vx_tune_table *table)
{
    struct vx_tune_table *again = table_open();
    const i32 count = vx_tune_table_count(table);
    struct vx_why why = {{0}};
    char *text = malloc(sizeof header + (size_t)count * VX_TUNE_LINE_BYTES);
    VX_ASSERT(text);
    memcpy(text, header, sizeof header - 1);
    size_t used = sizeof header - 1;
    for (i32 i = 0; i < count; i++) {
        char line[VX_TUNE_LINE_BYTES];
        size_t length = vx_tune_row_print(vx_tune_table_row(table, i), line);
        memcpy(text + used, line, length);
        used += length;
    }
    VX_ASSERT(!vx_tune_table_parse(again, "again", text, used, &why).fault);
    VX_ASSERT(vx_tune_table_count(again) == count);
    for (i32 i = 0; i < count; i++)
        VX_ASSERT(!memcmp(vx_tune_table_row(table, i), vx_tune_table_row(again, i),
                          sizeof(struct vx_tune_row)));
    free(text);
    vx_tune_table_close(&again);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    struct vx_tune_table *table = table_open();
    struct vx_why why = {{0}};
    vx_status status = vx_tune_table_parse(table, "t", (const char *)data, bytes, &why);
    if (status.fault) {
        VX_ASSERT(why.text[0]);
        VX_ASSERT(vx_tune_table_count(table) == 0);
    } else {
        check_round_trip(table);
    }
    vx_tune_table_close(&table);
    return 0;
}
