/* access_table - the file of tokens as a table: who there is, and what each may do.
 *
 * The file is JSON; lines that begin with // are comments, as in a configuration file.
 *
 *   {"tokens": [
 *     {"name": "street-cameras",                       letters, digits and . _ -
 *      "sha256": "<64 hexadecimal digits>",            of the token; a list of up to 4
 *      "models": ["normals", "street-*"],              names, or patterns of * and ?
 *      "methods": ["infer", "read"],                   access_group.h
 *      "limits": {"requests": {"per_second": 100, "burst": 200},
 *                 "bytes": {...}, "voxels": {...}},     none, unless given
 *      "expires": "2027-01-31T00:00:00Z"}]}             never, unless given
 *
 * In place of "sha256", or beside it, an entry may have "certificate": the subject of a
 * client's certificate, as the caller of vx_access_enter spells it.  With
 * "anyone": true an entry says what clients may do that send no token and whose certificate,
 * if they have one, no entry names.
 *
 *   VX_TRY(vx_access_table_parse(text, bytes, &why, table));
 *   i32 entry = vx_access_table_find(table, &key);
 *
 * Owner    the caller; nothing to release.
 * Thread   any; a table does not change.
 * Limits   VX_ACCESS_ENTRIES_MAX, VX_ACCESS_KEYS_EACH_MAX, VX_ACCESS_MODELS_MAX.
 * Fails    parse: INVALID_ARGUMENT with "line L, column C: expected ..., got ...";
 *          RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_TABLE_H
#define VX_SERVER_ACCESS_TABLE_H

#include "engine/base/limits.h"
#include "server/access/access_group.h"
#include "server/access/access_key.h"
#include "server/access/access_limit.h"

/* A lookup compares with every key, and metrics have series of each entry. */
#define VX_ACCESS_ENTRIES_MAX 256
/* A token and the one that replaces it, and as many again. */
#define VX_ACCESS_KEYS_EACH_MAX 4
#define VX_ACCESS_KEYS_MAX      (VX_ACCESS_ENTRIES_MAX * VX_ACCESS_KEYS_EACH_MAX)
/* More models than that have a common pattern. */
#define VX_ACCESS_MODELS_MAX 16
/* Of an entry, with its NUL: it is a label of metrics and in every access line. */
#define VX_ACCESS_NAME_BYTES 48
/* A subject of a certificate. */
#define VX_ACCESS_CERTIFICATE_BYTES_MAX 1024
/* Every entry with everything is 700 KiB. */
#define VX_ACCESS_FILE_BYTES_MAX (1 << 20)

struct vx_access_entry {
    char name[VX_ACCESS_NAME_BYTES];
    u32 groups; /* bit: enum vx_access_group */
    i32 models_count;
    char models[VX_ACCESS_MODELS_MAX][VX_NAME_BYTES];
    struct vx_access_limit limits[VX_ACCESS_UNITS];
    i64 expires_ms; /* since 1970; 0 = never */
};

struct vx_access_table {
    i32 entries_count, keys_count;
    i32 certificates_count; /* of the keys */
    i32 anyone;             /* the entry with "anyone"; -1 = none */
    struct vx_access_key keys[VX_ACCESS_KEYS_MAX];
    i32 key_entries[VX_ACCESS_KEYS_MAX]; /* whose key it is */
    struct vx_access_entry entries[VX_ACCESS_ENTRIES_MAX];
};

/* `text` is changed: comments become blanks. */
VX_MUST_USE vx_status vx_access_table_parse(char *text, size_t bytes, struct vx_why *why,
                                            struct vx_access_table *table);
/* The entry with that key, or -1.  Compares with every key, so that the time does not
 * tell which one it is. */
i32 vx_access_table_find(const struct vx_access_table *table,
                         const struct vx_access_key *key);
/* The entry of that name, or -1. */
i32 vx_access_table_named(const struct vx_access_table *table, const char *name);
/* Whether one of the entry's patterns is the model's name: * is any text, ? any byte. */
bool vx_access_entry_has(const struct vx_access_entry *entry, const char *model);
/* "2027-01-31T00:00:00Z", in milliseconds since 1970; false for any other form. */
bool vx_access_time_read(const char *text, i64 *ms);

#endif
