/* SPDX-License-Identifier: Apache-2.0 */
#include "server/govern/hpack_table.h"

/* RFC 7541, appendix A, in its order: the lengths of names and values.  No name there ends
 * in "-bin". */
static const struct {
    u8 name, value;
} statics[VX_HPACK_STATIC_COUNT] = {
    {10, 0}, {7, 3},  {7, 4},  {5, 1},  {5, 11}, {7, 4},  {7, 5},   {7, 3},  {7, 3},
    {7, 3},  {7, 3},  {7, 3},  {7, 3},  {7, 3},  {14, 0}, {15, 13}, {15, 0}, {13, 0},
    {6, 0},  {27, 0}, {3, 0},  {5, 0},  {13, 0}, {13, 0}, {19, 0},  {16, 0}, {16, 0},
    {14, 0}, {16, 0}, {13, 0}, {12, 0}, {6, 0},  {4, 0},  {4, 0},   {6, 0},  {7, 0},
    {4, 0},  {4, 0},  {8, 0},  {17, 0}, {13, 0}, {8, 0},  {19, 0},  {13, 0}, {4, 0},
    {8, 0},  {12, 0}, {18, 0}, {19, 0}, {5, 0},  {7, 0},  {7, 0},   {11, 0}, {6, 0},
    {10, 0}, {25, 0}, {17, 0}, {10, 0}, {4, 0},  {3, 0},  {16, 0},
};

void vx_hpack_table_init(struct vx_hpack_table *table)
{
    *table = (struct vx_hpack_table){.bytes = VX_HPACK_TABLE_BYTES};
}

static u32 entry_bytes(struct vx_hpack_entry entry)
{
    return (u32)entry.name + entry.value + VX_HPACK_ENTRY_BYTES;
}

/* Entries go, from the oldest on, until no more than `most` is used. */
static void evict(struct vx_hpack_table *table, u32 most)
{
    while (table->count && table->used > most) {
        table->used -= (u16)entry_bytes(table->entries[table->oldest]);
        table->oldest = (u16)((table->oldest + 1) % VX_HPACK_ENTRIES_MAX);
        table->count--;
    }
}

void vx_hpack_table_add(struct vx_hpack_table *table, const struct vx_hpack_field *field)
{
    u64 bytes = (u64)field->name + field->value + VX_HPACK_ENTRY_BYTES;
    evict(table, bytes > table->bytes ? 0 : table->bytes - (u32)bytes);
    if (bytes > table->bytes) return;
    u32 at = (table->oldest + table->count) % VX_HPACK_ENTRIES_MAX;
    table->entries[at] = (struct vx_hpack_entry){.name = field->name & 0x1fff,
                                                 .value = field->value & 0x1fff,
                                                 .binary = field->binary};
    table->used = (u16)(table->used + bytes);
    table->count++;
}

void vx_hpack_table_resize(struct vx_hpack_table *table, u32 bytes)
{
    if (bytes > VX_HPACK_TABLE_BYTES) return;
    evict(table, bytes);
    table->bytes = (u16)bytes;
}

bool vx_hpack_table_find(const struct vx_hpack_table *table, u32 index,
                         struct vx_hpack_field *field)
{
    *field = (struct vx_hpack_field){0};
    if (!index || index > VX_HPACK_STATIC_COUNT + (u32)table->count) return false;
    if (index <= VX_HPACK_STATIC_COUNT) {
        field->name = statics[index - 1].name;
        field->value = statics[index - 1].value;
        return true;
    }
    u32 newer = index - VX_HPACK_STATIC_COUNT; /* 1 = the newest */
    u32 at = (table->oldest + table->count - newer) % VX_HPACK_ENTRIES_MAX;
    struct vx_hpack_entry entry = table->entries[at];
    *field = (struct vx_hpack_field){entry.name, entry.value, entry.binary};
    return true;
}
