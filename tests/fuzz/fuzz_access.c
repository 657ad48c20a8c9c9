/* Any bytes as a file of tokens, and as the metadata `authorization`: no crash, an error
 * has a sentence, and a table that is accepted is whole.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "server/access/access_table.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

static void check_table(const struct vx_access_table *table)
{
    VX_ASSERT(table->entries_count <= VX_ACCESS_ENTRIES_MAX);
    VX_ASSERT(table->keys_count <= VX_ACCESS_KEYS_MAX);
    VX_ASSERT(table->anyone < table->entries_count);
    for (i32 k = 0; k < table->keys_count; k++)
        VX_ASSERT(vx_access_table_find(table, &table->keys[k]) == table->key_entries[k]);
    for (i32 e = 0; e < table->entries_count; e++) {
        const struct vx_access_entry *entry = &table->entries[e];
        VX_ASSERT(entry->name[0] && entry->groups && entry->models_count > 0);
        VX_ASSERT(vx_access_table_named(table, entry->name) == e);
        for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
            VX_ASSERT(entry->limits[u].per_s <= 0 || entry->limits[u].burst >= 1);
        (void)vx_access_entry_has(entry, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    static struct vx_access_table table;
    static char text[VX_ACCESS_FILE_BYTES_MAX];
    struct vx_why why = {""};
    const char *token = NULL;
    size_t length = 0;
    if (bytes > sizeof text) return 0;
    vx_status st = vx_access_bearer((const char *)data, bytes, &why, &token, &length);
    if (!st.fault)
        VX_ASSERT(length >= VX_ACCESS_TOKEN_BYTES_MIN &&
                  token + length == (const char *)data + bytes);
    memcpy(text, data, bytes);
    st = vx_access_table_parse(text, bytes, &why, &table);
    if (st.fault)
        VX_ASSERT(*vx_status_text(st, &why));
    else
        check_table(&table);
    return 0;
}
