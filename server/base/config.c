/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/config.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/json.h"
#include "engine/base/text/quantity.h"
#include "engine/base/text/typed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES_MAX                                                                   \
    48 /* of a setting: twice the longest; longer words are truncated in errors */
#define WHERE_BYTES   160 /* "line L, column C: name" or "--name" */
#define SHOWN_BYTES   64  /* of a value, in an error text */
#define NEAREST_BYTES (NAME_BYTES_MAX + 24)

enum kind { KIND_GROUP, KIND_TEXT, KIND_I64, KIND_FLAG, KIND_ENUM };

struct setting {
    enum kind kind;
    const char *name; /* with '_'; a group's title */
    size_t offset;    /* in struct vx_config */
    size_t said;      /* offset in struct vx_config_said */
    const char *text; /* the default of TEXT and ENUM */
    i64 number;       /* the default of I64 and FLAG */
    i64 min, max;
    const char *unit; /* the choices of ENUM */
    const char *help;
};

#define AT(name_)                                                                        \
    offsetof(struct vx_config, name_), offsetof(struct vx_config_said, name_)
static const struct setting settings[] = {
#define VX_GROUP(title_) {KIND_GROUP, title_, 0, 0, NULL, 0, 0, 0, NULL, NULL},
#define VX_TEXT(name_, default_, unit_, help_)                                           \
    {KIND_TEXT, #name_, AT(name_), default_, 0, 0, 0, unit_, help_},
#define VX_I64(name_, default_, min_, max_, unit_, help_)                                \
    {KIND_I64, #name_, AT(name_), NULL, default_, min_, max_, unit_, help_},
#define VX_FLAG(name_, default_, help_)                                                  \
    {KIND_FLAG, #name_, AT(name_), NULL, default_, 0, 1, NULL, help_},
#define VX_ENUM(name_, default_, choices_, help_)                                        \
    {KIND_ENUM, #name_, AT(name_), default_, 0, 0, 0, choices_, help_},
#include "server/base/config.def"
};

static char *text_of(struct vx_config *config, const struct setting *setting)
{
    return (char *)config + setting->offset;
}

static i64 *number_of(struct vx_config *config, const struct setting *setting)
{
    return (i64 *)(void *)((char *)config + setting->offset);
}

static bool *flag_of(struct vx_config *config, const struct setting *setting)
{
    return (bool *)((char *)config + setting->offset);
}

static bool *said_of(struct vx_config *config, const struct setting *setting)
{
    return (bool *)&config->said + setting->said;
}

static size_t text_bytes(const struct setting *setting)
{
    return setting->kind == KIND_ENUM ? sizeof((struct vx_config *)0)->log_level
                                      : VX_CONFIG_TEXT_BYTES;
}

void vx_config_defaults(struct vx_config *config)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < VX_COUNT(settings); i++) {
        const struct setting *setting = &settings[i];
        switch (setting->kind) {
        case KIND_GROUP: break;
        case KIND_I64: *number_of(config, setting) = setting->number; break;
        case KIND_FLAG: *flag_of(config, setting) = setting->number != 0; break;
        case KIND_TEXT:
        case KIND_ENUM:
            VX_ASSERT(strlen(setting->text) < text_bytes(setting));
            memcpy(text_of(config, setting), setting->text, strlen(setting->text) + 1);
            break;
        }
    }
}

/* ------- which setting is meant ------- */

/* "grace-ms" and "grace_ms" are the same name. */
static void name_normalise(const char *written, size_t length, char name[NAME_BYTES_MAX])
{
    if (length > NAME_BYTES_MAX - 1) length = NAME_BYTES_MAX - 1;
    for (size_t i = 0; i < length; i++) name[i] = written[i] == '-' ? '_' : written[i];
    name[length] = '\0';
}

static const char *name_spell(const char *name, char dash, char out[NAME_BYTES_MAX])
{
    snprintf(out, NAME_BYTES_MAX, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = dash;
    return out;
}

/* How a setting's name is spelt on the command line and in the file. */
static const struct place {
    char dash; /* between words */
    const char *before, *after;
} on_command_line = {'-', "--", ""}, in_file = {'_', "'", "'"};

static const struct setting *setting_find(const char *name)
{
    for (size_t i = 0; i < VX_COUNT(settings); i++)
        if (settings[i].kind != KIND_GROUP && !strcmp(settings[i].name, name))
            return &settings[i];
    return NULL;
}

/* "; the nearest is 'x'", spelt as in this place; "" when none is near. */
static const char *setting_nearest(const char *name, const struct place *place,
                                   char out[NEAREST_BYTES])
{
    const char *names[VX_COUNT(settings) + 1];
    char spelt[NAME_BYTES_MAX];
    for (size_t i = 0; i < VX_COUNT(settings); i++)
        names[i] = settings[i].kind == KIND_GROUP ? NULL : settings[i].name;
    names[VX_COUNT(settings)] = place->dash == '-' ? "config" : NULL;
    const char *nearest = vx_nearest_word(name, names, VX_COUNT(names));
    out[0] = '\0';
    if (nearest)
        snprintf(out, NEAREST_BYTES, "; the nearest is %s%s%s", place->before,
                 name_spell(nearest, place->dash, spelt), place->after);
    return out;
}

/* ------- one value ------- */

static vx_status set_number(struct vx_config *config, const struct setting *setting,
                            const char *where, const char *value, struct vx_why *why)
{
    i64 number = 0;
    bool parsed = vx_quantity_parse(setting->unit, value, &number);
    char low[VX_CONFIG_NUMBER_BYTES], high[VX_CONFIG_NUMBER_BYTES];
    char behind[VX_QUANTITY_SUFFIXES_BYTES];
    VX_ENSURE_WHY(parsed && number >= setting->min && number <= setting->max, why,
                  INVALID_ARGUMENT, "a setting's number is not what was expected",
                  "%s: expected a whole number of %s from %s to %s%s, got '%.*s'", where,
                  setting->unit, vx_config_number_text(setting->min, setting->unit, low),
                  vx_config_number_text(setting->max, setting->unit, high),
                  parsed ? "" : vx_quantity_suffixes(setting->unit, behind), SHOWN_BYTES,
                  value);
    *number_of(config, setting) = number;
    return VX_OK;
}

static bool choice_has(const char *choices, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        if (*at == '|') at++;
        if (strcspn(at, "|") == length && !strncmp(at, value, length)) return true;
    }
    return false;
}

static vx_status setting_set(struct vx_config *config, const struct setting *setting,
                             const char *where, const char *value, struct vx_why *why)
{
    *said_of(config, setting) = true;
    if (setting->kind == KIND_I64) return set_number(config, setting, where, value, why);
    if (setting->kind == KIND_FLAG) {
        bool yes = !strcmp(value, "true");
        VX_ENSURE_WHY(yes || !strcmp(value, "false"), why, INVALID_ARGUMENT,
                      "a setting must be true or false",
                      "%s: expected true or false, got '%.*s'", where, SHOWN_BYTES,
                      value);
        *flag_of(config, setting) = yes;
        return VX_OK;
    }
    if (setting->kind == KIND_ENUM)
        VX_ENSURE_WHY(choice_has(setting->unit, value), why, INVALID_ARGUMENT,
                      "a setting is none of its choices", "%s: expected %s, got '%.*s'",
                      where, setting->unit, SHOWN_BYTES, value);
    size_t bytes = text_bytes(setting);
    VX_ENSURE_WHY(
        strlen(value) < bytes, why, INVALID_ARGUMENT, "a setting's text is too long",
        "%s: expected at most %zu bytes, got %zu", where, bytes - 1, strlen(value));
    memcpy(text_of(config, setting), value, strlen(value) + 1);
    return VX_OK;
}

/* ------- the file ------- */

static vx_status file_read(const char *path, char *text, size_t *length,
                           struct vx_why *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    VX_ENSURE_WHY(fd >= 0, why, NOT_FOUND, "the configuration file cannot be opened",
                  "--config: expected a file that can be read, got '%.100s': %s", path,
                  strerror(errno));
    size_t have = 0;
    ssize_t got;
    do {
        got = read(fd, text + have, VX_CONFIG_FILE_BYTES_MAX + 1 - have);
        if (got > 0) have += (size_t)got;
    } while (got > 0 || (got < 0 && errno == EINTR));
    int error = got < 0 ? errno : 0;
    close(fd);
    VX_ENSURE_WHY(!error, why, NOT_FOUND, "the configuration file cannot be read",
                  "--config: expected a file that can be read, got '%.100s': %s", path,
                  strerror(error));
    VX_ENSURE_WHY(have <= VX_CONFIG_FILE_BYTES_MAX, why, INVALID_ARGUMENT,
                  "the configuration file is too large",
                  "%.100s: expected at most %d bytes of settings, got more", path,
                  VX_CONFIG_FILE_BYTES_MAX);
    *length = have;
    return VX_OK;
}

/* The JSON kind that the file must have for the setting; a number may also be a text. */
static enum vx_json_kind member_kind(const struct setting *setting,
                                     const struct vx_json *member)
{
    bool share = setting->kind == KIND_TEXT && !strcmp(setting->unit, "share");
    if (setting->kind == KIND_FLAG) return VX_JSON_BOOL;
    if (member->kind == VX_JSON_TEXT) return VX_JSON_TEXT;
    if (share) return member->kind == VX_JSON_I64 ? VX_JSON_I64 : VX_JSON_F64;
    return setting->kind == KIND_I64 ? VX_JSON_I64 : VX_JSON_TEXT;
}

/* The value as the command line would have it; `number` holds what is no text in the file. */
static const char *member_text(const struct vx_json *member, char number[32])
{
    i64 whole;
    if (member->kind == VX_JSON_BOOL) return member->boolean ? "true" : "false";
    if (member->kind == VX_JSON_TEXT) return member->text;
    if (vx_json_whole(member, &whole)) {
        snprintf(number, 32, "%lld", (long long)whole);
        return number;
    }
    /* 0.1 and not 0.10000000000000001, if that is the same number. */
    snprintf(number, 32, "%.15g", member->real);
    if (strtod(number, NULL) != member->real) snprintf(number, 32, "%.17g", member->real);
    return number;
}

static vx_status file_apply_member(struct vx_config *config, const struct vx_json *member,
                                   struct vx_why *why)
{
    char name[NAME_BYTES_MAX], nearest[NEAREST_BYTES], where[WHERE_BYTES], number[32];
    name_normalise(member->key, strlen(member->key), name);
    const struct setting *setting = setting_find(member->key);
    VX_ENSURE_WHY(setting, why, INVALID_ARGUMENT,
                  "the configuration file has an unknown setting",
                  "line %d, column %d: expected the name of a setting, got '%.*s'%s",
                  member->line, member->column, SHOWN_BYTES, member->key,
                  setting_nearest(name, &in_file, nearest));
    VX_TRY(vx_json_check_kind(member, member_kind(setting, member), why));
    snprintf(where, sizeof where, "line %d, column %d: %s", member->line, member->column,
             setting->name);
    config->places[setting - settings] =
        (struct vx_config_place){member->line, member->column};
    return setting_set(config, setting, where, member_text(member, number), why);
}

/* The reader's hint is right for JSON; this file has comments, on lines of their own. */
static void file_say_comment(struct vx_why *why)
{
    static const char json[] = "(JSON has no comments)";
    char *hint = strstr(why->text, json);
    if (hint && !hint[sizeof json - 1])
        snprintf(hint, sizeof why->text - (size_t)(hint - why->text),
                 "(a comment must stand on a line of its own that begins with //)");
}

static vx_status file_apply_text(struct vx_config *config, const char *text,
                                 size_t length, struct vx_why *why)
{
    size_t bytes = vx_json_arena_bytes(length);
    void *block = vx_alloc(bytes);
    VX_ENSURE(block, RESOURCE_EXHAUSTED, "no memory to read the configuration file");
    struct vx_arena arena;
    vx_arena_init(&arena, block, bytes);
    const struct vx_json *root;
    vx_status st;
    VX_TRY_OR(st, out, vx_json_parse(text, length, &arena, why, &root));
    VX_TRY_OR(st, out, vx_json_check_kind(root, VX_JSON_OBJECT, why));
    VX_JSON_EACH(member, root) VX_TRY_OR(st, out, file_apply_member(config, member, why));
out:
    vx_free(block);
    return st;
}

static vx_status file_apply(struct vx_config *config, const char *path,
                            struct vx_why *why)
{
    char *text = vx_alloc(VX_CONFIG_FILE_BYTES_MAX + 1);
    VX_ENSURE(text, RESOURCE_EXHAUSTED, "no memory to read the configuration file");
    size_t length = 0;
    vx_status st = file_read(path, text, &length, why);
    struct vx_why inner = {""};
    if (!st.fault) {
        vx_config_uncomment(text, length);
        st = file_apply_text(config, text, length, &inner);
        file_say_comment(&inner);
        if (st.fault) vx_why_set(why, "%.100s: %s", path, vx_status_text(st, &inner));
    }
    vx_free(text);
    return st;
}

/* ------- the flags ------- */

struct flag {
    char name[NAME_BYTES_MAX]; /* normalised, without the dashes and without "no-" */
    const char *value;         /* NULL when there is none */
    bool no;
    const struct setting *setting; /* NULL for --config */
};

/* Reads the flag at arguments[*at] and moves *at behind it. */
static vx_status flag_read(int count, char **arguments, int *at, struct vx_why *why,
                           struct flag *flag)
{
    const char *word = arguments[(*at)++];
    VX_ENSURE_WHY(!strncmp(word, "--", 2) && word[2], why, INVALID_ARGUMENT,
                  "an argument is not a setting",
                  "expected a setting such as --grpc, got '%.*s'", SHOWN_BYTES, word);
    const char *body = word + 2, *equals = strchr(body, '=');
    *flag = (struct flag){.value = equals ? equals + 1 : NULL};
    name_normalise(body, equals ? (size_t)(equals - body) : strlen(body), flag->name);
    if (!equals && !strncmp(flag->name, "no_", 3)) {
        const struct setting *setting = setting_find(flag->name + 3);
        flag->no = setting && setting->kind == KIND_FLAG;
        if (flag->no) memmove(flag->name, flag->name + 3, strlen(flag->name) - 2);
    }
    flag->setting = setting_find(flag->name);
    char nearest[NEAREST_BYTES];
    bool is_config = !strcmp(flag->name, "config");
    VX_ENSURE_WHY(flag->setting || is_config, why, INVALID_ARGUMENT,
                  "a setting is unknown", "unknown setting '%.*s'%s (--help lists all)",
                  SHOWN_BYTES, word,
                  setting_nearest(flag->name, &on_command_line, nearest));
    if (flag->value) return VX_OK;
    if (flag->setting && flag->setting->kind == KIND_FLAG) {
        flag->value = flag->no ? "false" : "true";
        return VX_OK;
    }
    bool follows = *at < count && strncmp(arguments[*at], "--", 2);
    VX_ENSURE_WHY(follows, why, INVALID_ARGUMENT, "a setting has no value",
                  "%s: expected a value (%s) after it, got %s", word,
                  is_config ? "path" : flag->setting->unit,
                  *at < count ? "another setting" : "nothing");
    flag->value = arguments[(*at)++];
    return VX_OK;
}

/* For most settings the last flag applies, so that one in a script can be overridden.
 * These two are refused when given twice: other servers then use both values, which a
 * user may expect. */
static vx_status flag_check_once(const struct vx_config *config, const struct flag *flag,
                                 const bool *given, struct vx_why *why)
{
    bool list = !strcmp(flag->name, "load_model");
    if (!*given || (!list && strcmp(flag->name, "repository") != 0)) return VX_OK;
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a setting is given twice",
                "--%s: expected it once%s, got '%.60s' and '%.60s'",
                list ? "load-model" : "repository",
                list ? ", with names separated by commas" : "",
                list ? config->load_model : config->repository, flag->value);
}

vx_status vx_config_parse(int count, char **arguments, struct vx_why *why,
                          struct vx_config *config)
{
    vx_config_defaults(config);
    struct flag flag;
    const char *path = NULL;
    bool given[VX_COUNT(settings)] = {false};
    for (int at = 0; at < count;) {
        VX_TRY(flag_read(count, arguments, &at, why, &flag));
        if (flag.setting) continue;
        VX_ENSURE_WHY(!path, why, INVALID_ARGUMENT, "two configuration files",
                      "--config: expected one file, got '%.80s' and '%.80s'", path,
                      flag.value);
        path = flag.value;
    }
    if (path) VX_TRY(file_apply(config, path, why));
    config->file = path;
    for (int at = 0; at < count;) {
        VX_TRY(flag_read(count, arguments, &at, why, &flag));
        if (!flag.setting) continue;
        char where[WHERE_BYTES], spelt[NAME_BYTES_MAX];
        bool *before = &given[flag.setting - settings];
        VX_TRY(flag_check_once(config, &flag, before, why));
        *before = true;
        config->places[flag.setting - settings] = (struct vx_config_place){0};
        snprintf(where, sizeof where, "--%s", name_spell(flag.setting->name, '-', spelt));
        VX_TRY(setting_set(config, flag.setting, where, flag.value, why));
    }
    return VX_OK;
}

void vx_config_say_place(const struct vx_config *config, struct vx_why *why)
{
    const struct vx_why said = *why;
    size_t bytes = strcspn(said.text, ":");
    for (size_t i = 0; i < VX_COUNT(settings); i++) {
        const struct vx_config_place *place = &config->places[i];
        if (!place->line || strlen(settings[i].name) != bytes) continue;
        if (strncmp(settings[i].name, said.text, bytes) != 0) continue;
        vx_why_set(why, "%.100s: line %d, column %d: %s", config->file, place->line,
                   place->column, said.text);
    }
}
