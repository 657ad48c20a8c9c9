/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/access/access_rig.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

struct vx_access *rig_access;
struct vx_why rig_why;
struct vx_access_ticket rig_ticket;

const char *rig_hex(const char *token)
{
    static char hex[4][VX_SHA256_HEX_BYTES];
    static int next;
    struct vx_access_key key;
    vx_access_key_of(VX_ACCESS_TOKEN, token, strlen(token), &key);
    char *text = hex[next++ % 4];
    vx_sha256_hex(key.digest, text);
    return text;
}

void rig_use(const char *text)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    vx_status st =
        vx_access_table_parse(copy, strlen(copy), &rig_why, vx_access_spare(rig_access));
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &rig_why));
    vx_access_use_spare(rig_access, 0);
}

/* An entry a with TOKEN_A, and whatever follows its name and key. */
void rig_use_a(const char *rest)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", %s}]}",
             rig_hex(TOKEN_A), rest);
    rig_use(text);
}

void rig_open(const struct vx_access_options *options)
{
    ck_assert(!vx_access_open(options, &rig_access).fault);
}

vx_status rig_enter(i32 method, const char *authorization, i64 now_ns)
{
    struct vx_access_arrival arrival = {.method = method,
                                        .connection = 7,
                                        .authorization = authorization,
                                        .is_request = method != M_MODEL_STREAM_INFER,
                                        .now_ns = now_ns};
    if (authorization) arrival.authorization_length = strlen(authorization);
    rig_why.text[0] = '\0';
    return vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket);
}

void rig_refused(vx_status st, enum vx_code code, const char *sentence)
{
    ck_assert(st.fault != NULL);
    const char *text = vx_status_text(st, &rig_why);
    ck_assert_msg(vx_status_code(st) == code && strstr(text, sentence), "%s: %s",
                  vx_code_name(vx_status_code(st)), text);
    ck_assert_ptr_null(strstr(text, "token-a-")); /* never a part of a token */
    ck_assert_ptr_null(strstr(text, "token-b-"));
}
void rig_passes(vx_status st)
{
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &rig_why));
}

struct vx_access_counts rig_counts(i32 i)
{
    struct vx_access_counts counts;
    char name[VX_ACCESS_NAME_BYTES];
    ck_assert(vx_access_counts_get(rig_access, i, name, &counts));
    return counts;
}

vx_status rig_spend(i64 requests, i64 bytes, i64 voxels, i64 now_ns)
{
    const struct vx_access_cost cost = {.of = {[VX_ACCESS_REQUESTS] = requests,
                                               [VX_ACCESS_BYTES] = bytes,
                                               [VX_ACCESS_VOXELS] = voxels}};
    rig_why.text[0] = '\0';
    return vx_access_spend(rig_access, &rig_ticket, &cost, now_ns, &rig_why);
}
