/* json_write - writes JSON into a vx_text, with the commas where they belong.
 *
 *   struct vx_json_writer json = {.text = &text};
 *   vx_json_open(&json, NULL, '{');
 *   vx_json_i64(&json, "queued", 3);
 *   vx_json_open(&json, "models", '[');
 *   vx_json_close(&json, ']');
 *   vx_json_close(&json, '}');
 *
 * `key` is NULL in a list and at the root; it is written as it is.
 *
 * Owner    the caller.
 * Thread   one at a time.
 * Limits   the text's.
 * Fails    never; vx_text.full is set when something is missing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_JSON_WRITE_H
#define VX_SERVER_JSON_WRITE_H

#include "server/base/text.h"

struct vx_json_writer {
    struct vx_text *text;
    bool follows; /* something was written at this level: a comma comes first */
};

void vx_json_open(struct vx_json_writer *json, const char *key, char bracket);
void vx_json_close(struct vx_json_writer *json, char bracket);
void vx_json_text(struct vx_json_writer *json, const char *key, const char *value);
void vx_json_i64(struct vx_json_writer *json, const char *key, i64 value);
void vx_json_bool(struct vx_json_writer *json, const char *key, bool value);
void vx_json_null(struct vx_json_writer *json, const char *key);

#endif
