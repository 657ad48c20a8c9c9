/* Any bytes through the JSON reader: no crash, and the arena bound of vx_json_arena_bytes
 * holds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

/* Walks all of a value: every pointer is followed, every text measured, every member
 * found. */
static i64 walk(const struct vx_json *value)
{
    i64 seen = 1, children = 0;
    VX_ASSERT(value->line >= 1);
    VX_ASSERT(value->column >= 1);
    if (value->kind == VX_JSON_TEXT)
        VX_ASSERT(strlen(value->text) == (size_t)value->count);
    if (value->kind != VX_JSON_LIST && value->kind != VX_JSON_OBJECT) return seen;
    VX_JSON_EACH(child, value)
    {
        VX_ASSERT((value->kind == VX_JSON_OBJECT) == (child->key != NULL));
        if (child->key) VX_ASSERT(vx_json_find(value, child->key) == child);
        seen += walk(child);
        children++;
    }
    VX_ASSERT(children == value->count);
    return seen;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    size_t room = vx_json_arena_bytes(bytes);
    u8 *block = vx_alloc(room);
    struct vx_arena arena;
    struct vx_why why = {{0}};
    const struct vx_json *root;
    if (!block) return 0;
    vx_arena_init(&arena, block, room);
    vx_status status = vx_json_parse((const char *)data, bytes, &arena, &why, &root);
    /* The arena is always large enough, so only the text can be wrong, and then the error
     * says so. */
    if (status.fault) VX_ASSERT(vx_status_code(status) == VX_CODE_INVALID_ARGUMENT);
    if (status.fault) VX_ASSERT(why.text[0]);
    if (!status.fault) VX_ASSERT(walk(root) >= 1);
    vx_free(block);
    return 0;
}
