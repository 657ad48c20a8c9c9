/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/json_write.h"

static void begin(struct vx_json_writer *json, const char *key)
{
    if (json->follows) vx_text_add(json->text, ",");
    json->follows = true;
    if (!key) return;
    vx_text_add(json->text, "\"");
    vx_text_add(json->text, key);
    vx_text_add(json->text, "\":");
}

static void bracket_add(struct vx_json_writer *json, char bracket)
{
    const char text[2] = {bracket, '\0'};
    vx_text_add(json->text, text);
}

void vx_json_open(struct vx_json_writer *json, const char *key, char bracket)
{
    begin(json, key);
    bracket_add(json, bracket);
    json->follows = false;
}

void vx_json_close(struct vx_json_writer *json, char bracket)
{
    bracket_add(json, bracket);
    json->follows = true;
}

void vx_json_text(struct vx_json_writer *json, const char *key, const char *value)
{
    begin(json, key);
    vx_text_add(json->text, "\"");
    vx_text_json(json->text, value);
    vx_text_add(json->text, "\"");
}

void vx_json_i64(struct vx_json_writer *json, const char *key, i64 value)
{
    begin(json, key);
    vx_text_i64(json->text, value);
}

void vx_json_bool(struct vx_json_writer *json, const char *key, bool value)
{
    begin(json, key);
    vx_text_add(json->text, value ? "true" : "false");
}

void vx_json_null(struct vx_json_writer *json, const char *key)
{
    begin(json, key);
    vx_text_add(json->text, "null");
}
