/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/access/access_table.h"

#include "engine/base/process/alloc.h"
#include "engine/base/text/json.h"
#include "engine/base/text/typed.h"
#include "server/base/config.h"

#include <string.h>
#include <time.h>

/* Slower than one unit in twelve days is a typing mistake. */
#define RATE_MIN 1e-6

/* ------- lookups ------- */

i32 vx_access_table_find(const struct vx_access_table *table,
                         const struct vx_access_key *key)
{
    i32 found = -1;
    for (i32 k = 0; k < table->keys_count; k++)
        if (vx_access_key_same(&table->keys[k], key)) found = table->key_entries[k];
    return found;
}

i32 vx_access_table_named(const struct vx_access_table *table, const char *name)
{
    for (i32 e = 0; e < table->entries_count; e++)
        if (!strcmp(table->entries[e].name, name)) return e;
    return -1;
}

/* A * that does not fit takes one more byte and the rest is tried again: at most the
 * product of both lengths in steps, whatever the pattern. */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *again = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            again = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

bool vx_access_entry_has(const struct vx_access_entry *entry, const char *model)
{
    for (i32 m = 0; m < entry->models_count; m++)
        if (matches(entry->models[m], model)) return true;
    return false;
}

/* ------- parts of an entry ------- */

/* Reads so many digits; false if one is none. */
static bool digits_read(const char **at, i32 count, int *number)
{
    *number = 0;
    for (i32 i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9') return false;
        *number = *number * 10 + (**at - '0');
    }
    return true;
}

bool vx_access_time_read(const char *text, i64 *ms)
{
    static const char between[] = "--T::Z";
    int parts[6];
    const char *at = text;
    for (i32 i = 0; i < 6; i++) {
        if (!digits_read(&at, i ? 2 : 4, &parts[i]) || *at != between[i]) return false;
        at++;
    }
    struct tm day = {.tm_year = parts[0] - 1900,
                     .tm_mon = parts[1] - 1,
                     .tm_mday = parts[2],
                     .tm_hour = parts[3],
                     .tm_min = parts[4],
                     .tm_sec = parts[5]};
    struct tm same = day;
    time_t seconds = timegm(&same);
    /* timegm moves what is out of range, such as the 30th of February. */
    if (*at || same.tm_mon != day.tm_mon || same.tm_mday != day.tm_mday ||
        same.tm_hour != day.tm_hour || same.tm_min != day.tm_min ||
        same.tm_sec != day.tm_sec)
        return false;
    *ms = (i64)seconds * 1000;
    return *ms > 0;
}

/* What is read now, for the functions of keys. */
struct reading {
    struct vx_access_table *table;
    struct vx_access_entry *entry; /* the last of the table */
    i32 keys;                      /* that it has so far */
    bool anyone;
    struct vx_why *why;
};

static vx_status name_read(struct reading *reading, const struct vx_json *value)
{
    char *name = reading->entry->name;
    VX_TRY(vx_json_read_name(value, reading->why, name, VX_ACCESS_NAME_BYTES));
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    VX_ENSURE_WHY(
        strspn(name, letters) == strlen(name), reading->why, INVALID_ARGUMENT,
        "the name of a token has other characters",
        "line %d, column %d: name: expected letters, digits and . _ -, got '%s'",
        value->line, value->column, name);
    i32 first = vx_access_table_named(reading->table, name);
    VX_ENSURE_WHY(first == reading->table->entries_count - 1, reading->why,
                  INVALID_ARGUMENT, "two tokens have one name",
                  "line %d, column %d: name: expected each name once, got '%s' again",
                  value->line, value->column, name);
    return VX_OK;
}

static vx_status key_add(struct reading *reading, const struct vx_json *value,
                         const struct vx_access_key *key)
{
    struct vx_access_table *table = reading->table;
    VX_ENSURE_WHY(
        reading->keys < VX_ACCESS_KEYS_EACH_MAX, reading->why, INVALID_ARGUMENT,
        "an entry has too many keys",
        "line %d, column %d: expected at most %d tokens and certificates of one "
        "entry, got more",
        value->line, value->column, VX_ACCESS_KEYS_EACH_MAX);
    i32 other = vx_access_table_find(table, key);
    VX_ENSURE_WHY(other < 0, reading->why, INVALID_ARGUMENT, "two entries have one key",
                  "line %d, column %d: expected a token or certificate of its own, got "
                  "one that '%s' has already",
                  value->line, value->column, table->entries[other < 0 ? 0 : other].name);
    table->key_entries[table->keys_count] = table->entries_count - 1;
    table->keys[table->keys_count++] = *key;
    reading->keys++;
    return VX_OK;
}

/* Never quotes the value: somebody may have written the token itself there. */
static vx_status digest_read(struct reading *reading, const struct vx_json *value)
{
    struct vx_access_key key;
    bool good = value->kind == VX_JSON_TEXT && vx_access_key_read(value->text, &key);
    VX_ENSURE_WHY(good, reading->why, INVALID_ARGUMENT, "a hash is none",
                  "line %d, column %d: sha256: expected the %d hexadecimal digits of a "
                  "token's SHA-256, got %s%s",
                  value->line, value->column, 2 * VX_SHA256_BYTES,
                  vx_json_kind_name(value->kind),
                  value->kind == VX_JSON_TEXT ? " that is something else" : "");
    return key_add(reading, value, &key);
}

static vx_status certificate_read(struct reading *reading, const struct vx_json *value)
{
    struct vx_access_key key;
    bool good = value->kind == VX_JSON_TEXT && value->count > 0 &&
                value->count <= VX_ACCESS_CERTIFICATE_BYTES_MAX;
    VX_ENSURE_WHY(good, reading->why, INVALID_ARGUMENT, "a certificate's subject is none",
                  "line %d, column %d: certificate: expected a subject of 1 to %d bytes",
                  value->line, value->column, VX_ACCESS_CERTIFICATE_BYTES_MAX);
    vx_access_key_of(VX_ACCESS_CERTIFICATE, value->text, (size_t)value->count, &key);
    reading->table->certificates_count++;
    return key_add(reading, value, &key);
}

/* One, or a list of them. */
static vx_status each(struct reading *reading, const struct vx_json *value,
                      vx_status (*read)(struct reading *, const struct vx_json *))
{
    if (value->kind != VX_JSON_LIST) return read(reading, value);
    VX_JSON_EACH(child, value) VX_TRY(read(reading, child));
    return VX_OK;
}

static vx_status sha256_read(struct reading *reading, const struct vx_json *value)
{
    return each(reading, value, digest_read);
}

static vx_status certificates_read(struct reading *reading, const struct vx_json *value)
{
    return each(reading, value, certificate_read);
}

static vx_status anyone_read(struct reading *reading, const struct vx_json *value)
{
    VX_TRY(vx_json_read_bool(value, reading->why, &reading->anyone));
    return VX_OK;
}

static vx_status model_read(struct reading *reading, const struct vx_json *value)
{
    struct vx_access_entry *entry = reading->entry;
    VX_ENSURE_WHY(
        entry->models_count < VX_ACCESS_MODELS_MAX, reading->why, INVALID_ARGUMENT,
        "an entry has too many models",
        "line %d, column %d: models: expected at most %d names or patterns, got "
        "more",
        value->line, value->column, VX_ACCESS_MODELS_MAX);
    VX_TRY(vx_json_read_name(value, reading->why, entry->models[entry->models_count],
                             VX_NAME_BYTES));
    entry->models_count++;
    return VX_OK;
}

static vx_status models_read(struct reading *reading, const struct vx_json *value)
{
    VX_TRY(vx_json_check_kind(value, VX_JSON_LIST, reading->why));
    return each(reading, value, model_read);
}

static vx_status method_read(struct reading *reading, const struct vx_json *value)
{
    const char *names[VX_ACCESS_GROUPS], *text;
    char nearest[VX_NEAREST_BYTES];
    VX_TRY(vx_json_read_text(value, reading->why, &text));
    for (i32 g = 0; g < VX_ACCESS_GROUPS; g++) {
        names[g] = vx_access_group_name((enum vx_access_group)g);
        if (strcmp(text, names[g]) != 0) continue;
        reading->entry->groups |= UINT32_C(1) << g;
        return VX_OK;
    }
    VX_FAIL_WHY(reading->why, INVALID_ARGUMENT, "an unknown group of methods",
                "line %d, column %d: methods: expected a group of methods, got '%.*s'%s",
                value->line, value->column, VX_NAME_SHOWN, text,
                vx_nearest_text(text, names, VX_ACCESS_GROUPS, nearest));
}

static vx_status methods_read(struct reading *reading, const struct vx_json *value)
{
    VX_TRY(vx_json_check_kind(value, VX_JSON_LIST, reading->why));
    return each(reading, value, method_read);
}

static vx_status unknown(const struct vx_json *member, const char *const *known,
                         size_t known_count, struct vx_why *why)
{
    char nearest[VX_NEAREST_BYTES];
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "the file of tokens has an unknown key",
                "line %d, column %d: unknown key '%.*s'%s", member->line, member->column,
                VX_NAME_SHOWN, member->key,
                vx_nearest_text(member->key, known, known_count, nearest));
}

static vx_status limit_read(const struct vx_json *value, struct vx_why *why,
                            struct vx_access_limit *limit)
{
    static const char *const known[] = {"per_second", "burst"};
    VX_TRY(vx_json_check_kind(value, VX_JSON_OBJECT, why));
    VX_JSON_EACH(member, value)
    {
        if (!strcmp(member->key, "per_second"))
            VX_TRY(vx_json_read_f64(member, RATE_MIN, VX_ACCESS_RATE_MAX, why,
                                    &limit->per_s));
        else if (!strcmp(member->key, "burst"))
            VX_TRY(vx_json_read_f64(member, 1, VX_ACCESS_RATE_MAX, why, &limit->burst));
        else
            return unknown(member, known, VX_COUNT(known), why);
    }
    VX_ENSURE_WHY(limit->per_s > 0, why, INVALID_ARGUMENT, "a limit without a rate",
                  "line %d, column %d: %s: expected \"per_second\"", value->line,
                  value->column, value->key);
    if (limit->burst < 1) limit->burst = limit->per_s < 1 ? 1 : limit->per_s;
    return VX_OK;
}

static vx_status limits_read(struct reading *reading, const struct vx_json *value)
{
    const char *names[VX_ACCESS_UNITS];
    for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
        names[u] = vx_access_unit_name((enum vx_access_unit)u);
    VX_TRY(vx_json_check_kind(value, VX_JSON_OBJECT, reading->why));
    VX_JSON_EACH(member, value)
    {
        i32 u = 0;
        while (u < VX_ACCESS_UNITS && strcmp(member->key, names[u])) u++;
        if (u == VX_ACCESS_UNITS)
            return unknown(member, names, VX_ACCESS_UNITS, reading->why);
        VX_TRY(limit_read(member, reading->why, &reading->entry->limits[u]));
    }
    return VX_OK;
}

static vx_status expires_read(struct reading *reading, const struct vx_json *value)
{
    const char *text;
    VX_TRY(vx_json_read_text(value, reading->why, &text));
    VX_ENSURE_WHY(vx_access_time_read(text, &reading->entry->expires_ms), reading->why,
                  INVALID_ARGUMENT, "a time is none",
                  "line %d, column %d: expires: expected a time in UTC such as "
                  "2027-01-31T00:00:00Z, got '%.*s'",
                  value->line, value->column, VX_NAME_SHOWN, text);
    return VX_OK;
}

/* ------- entries, the file ------- */

static const struct {
    const char *key;
    vx_status (*read)(struct reading *reading, const struct vx_json *value);
} keys[] = {
    {"name", name_read},
    {"sha256", sha256_read},
    {"certificate", certificates_read},
    {"anyone", anyone_read},
    {"models", models_read},
    {"methods", methods_read},
    {"limits", limits_read},
    {"expires", expires_read},
};

static vx_status member_read(struct reading *reading, const struct vx_json *member)
{
    const char *names[VX_COUNT(keys)];
    for (size_t k = 0; k < VX_COUNT(keys); k++) {
        names[k] = keys[k].key;
        if (!strcmp(member->key, names[k])) return keys[k].read(reading, member);
    }
    return unknown(member, names, VX_COUNT(keys), reading->why);
}

static vx_status entry_check(const struct reading *reading, const struct vx_json *value)
{
    const struct vx_access_entry *entry = reading->entry;
    const char *missing = !entry->name[0]                      ? "name"
                          : !entry->models_count               ? "models"
                          : !entry->groups                     ? "methods"
                          : !reading->keys && !reading->anyone ? "sha256"
                                                               : NULL;
    VX_ENSURE_WHY(!missing, reading->why, INVALID_ARGUMENT, "an entry lacks a key",
                  "line %d, column %d: expected \"%s\" in the entry%s%s", value->line,
                  value->column, missing, entry->name[0] ? " " : "", entry->name);
    VX_ENSURE_WHY(!reading->anyone || !reading->keys, reading->why, INVALID_ARGUMENT,
                  "an entry is for anyone and has a key",
                  "line %d, column %d: %s: expected \"anyone\" without a token and a "
                  "certificate",
                  value->line, value->column, entry->name);
    VX_ENSURE_WHY(!reading->anyone || reading->table->anyone < 0, reading->why,
                  INVALID_ARGUMENT, "two entries are for anyone",
                  "line %d, column %d: %s: expected one entry with \"anyone\", got two",
                  value->line, value->column, entry->name);
    return VX_OK;
}

static vx_status entry_read(struct vx_access_table *table, const struct vx_json *value,
                            struct vx_why *why)
{
    VX_TRY(vx_json_check_kind(value, VX_JSON_OBJECT, why));
    VX_ENSURE_WHY(table->entries_count < VX_ACCESS_ENTRIES_MAX, why, INVALID_ARGUMENT,
                  "too many tokens",
                  "line %d, column %d: expected at most %d entries, got more",
                  value->line, value->column, VX_ACCESS_ENTRIES_MAX);
    struct reading reading = {table, &table->entries[table->entries_count++], 0, false,
                              why};
    *reading.entry = (struct vx_access_entry){.groups = 0};
    VX_JSON_EACH(member, value) VX_TRY(member_read(&reading, member));
    VX_TRY(entry_check(&reading, value));
    if (reading.anyone) table->anyone = table->entries_count - 1;
    return VX_OK;
}

static vx_status root_read(struct vx_access_table *table, const struct vx_json *root,
                           struct vx_why *why)
{
    static const char *const known[] = {"tokens"};
    VX_TRY(vx_json_check_kind(root, VX_JSON_OBJECT, why));
    const struct vx_json *tokens = vx_json_find(root, "tokens");
    VX_JSON_EACH(member, root)
    if (member != tokens) return unknown(member, known, VX_COUNT(known), why);
    VX_ENSURE_WHY(tokens, why, INVALID_ARGUMENT, "the file has no list of tokens",
                  "line %d, column %d: expected \"tokens\": [...]", root->line,
                  root->column);
    VX_TRY(vx_json_check_kind(tokens, VX_JSON_LIST, why));
    VX_JSON_EACH(value, tokens) VX_TRY(entry_read(table, value, why));
    return VX_OK;
}

vx_status vx_access_table_parse(char *text, size_t bytes, struct vx_why *why,
                                struct vx_access_table *table)
{
    struct vx_arena arena;
    const struct vx_json *root;
    table->entries_count = table->keys_count = table->certificates_count = 0;
    table->anyone = -1;
    vx_config_uncomment(text, bytes);
    void *block = vx_alloc(vx_json_arena_bytes(bytes));
    VX_ENSURE(block, RESOURCE_EXHAUSTED, "no memory to read the file of tokens");
    vx_arena_init(&arena, block, vx_json_arena_bytes(bytes));
    vx_status st = vx_json_parse(text, bytes, &arena, why, &root);
    if (!st.fault) st = root_read(table, root, why);
    vx_free(block);
    return st;
}
