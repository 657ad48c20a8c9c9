/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/config.h"

#include "engine/base/process/check.h"
#include "server/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define HELP_COLUMN  34 /* the longest flag with its unit ends two columns before */
#define HELP_COLUMNS 100

/* "  --grace-ms MS", padded to the column of the help. */
static void help_flag(struct vx_text *text, const char *name, const char *value)
{
    char flag[HELP_COLUMNS];
    int length = snprintf(flag, sizeof flag, "  --%s %s", name, value);
    for (size_t i = 0; i < strlen(name); i++)
        if (name[i] == '_') flag[4 + i] = '-'; /* after "  --"; the value keeps its '_' */
    vx_text_print(text, "%-*s", HELP_COLUMN, flag);
    if (length >= HELP_COLUMN) vx_text_print(text, "\n%*s", HELP_COLUMN, "");
}

/* Adds the words of `help`, wrapped; the text so far ends at HELP_COLUMN. */
static void help_wrap(struct vx_text *text, const char *help)
{
    size_t column = HELP_COLUMN;
    while (*help) {
        size_t word = strcspn(help, *help == '[' ? "]" : " "); /* keep [...] on a line */
        word += strcspn(help + word, " ");
        if (column > HELP_COLUMN && column + 1 + word > HELP_COLUMNS) {
            vx_text_print(text, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        vx_text_print(text, "%s%.*s", column > HELP_COLUMN ? " " : "", (int)word, help);
        column += word + (column > HELP_COLUMN);
        help += word + strspn(help + word, " ");
    }
    vx_text_add(text, "\n");
}

static void help_entry(struct vx_text *text, const char *name, const char *value,
                       const char *help, const char *standard)
{
    char unit[HELP_COLUMNS], all[512];
    snprintf(unit, sizeof unit, "%s", value);
    for (char *c = unit; *c && !strchr(value, '|'); c++)
        *c = (char)toupper((unsigned char)*c);
    snprintf(all, sizeof all, "%s%s", help, standard);
    help_flag(text, name, unit);
    help_wrap(text, all);
}

static void help_text(struct vx_text *text, const char *name, const char *standard,
                      const char *unit, const char *help)
{
    char shown[VX_CONFIG_TEXT_BYTES];
    shown[0] = '\0';
    if (standard[0]) snprintf(shown, sizeof shown, " [%s]", standard);
    help_entry(text, name, unit, help, shown);
}

static void help_number(struct vx_text *text, const char *name, const i64 numbers[3],
                        const char *unit, const char *help)
{
    char standard[VX_CONFIG_NUMBER_BYTES], low[VX_CONFIG_NUMBER_BYTES];
    char high[VX_CONFIG_NUMBER_BYTES], shown[128];
    snprintf(shown, sizeof shown, " [%s; %s to %s]",
             vx_config_number_text(numbers[0], unit, standard),
             vx_config_number_text(numbers[1], unit, low),
             vx_config_number_text(numbers[2], unit, high));
    help_entry(text, name, unit, help, shown);
}

size_t vx_config_help(char *out, size_t bytes)
{
    struct vx_text text;
    vx_text_init(&text, out, bytes);
    vx_text_add(&text,
                "Settings.  A flag overrides the file of --config, which "
                "overrides the [default; range].\nOf a flag that is given twice "
                "the last value applies, but twice --repository or\n"
                "--load-model is refused.\nSizes take K, M, G, T (powers of 1024), "
                "times take us, ms and s: --arena-bytes 4G --grace-ms=5s.\n\n");
    help_text(&text, "config", "", "path",
              "JSON object with the same names as keys: {\"grace_ms\": \"5s\", "
              "\"access_log\": true}");
#define VX_GROUP(title_) vx_text_print(&text, "\n%s\n", title_);
#define VX_TEXT(name_, default_, unit_, help_)                                           \
    help_text(&text, #name_, default_, unit_, help_);
#define VX_I64(name_, default_, min_, max_, unit_, help_)                                \
    help_number(&text, #name_, (const i64[]){default_, min_, max_}, unit_, help_);
#define VX_FLAG(name_, default_, help_)                                                  \
    help_text(&text, #name_, (default_) ? "on; --no-" #name_ " turns it off" : "off",    \
              "", help_);
#define VX_ENUM(name_, default_, choices_, help_)                                        \
    help_text(&text, #name_, default_, choices_, help_);
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
    return text.needed + 1;
}

/* The settings that differ from their default. */
static int changed_fields(const struct vx_config *config,
                          struct vx_log_field fields[VX_CONFIG_SETTINGS])
{
    struct vx_config standard;
    vx_config_defaults(&standard);
    int count = 0;
#define VX_GROUP(title_)
#define VX_TEXT(name_, default_, unit_, help_)                                           \
    if (strcmp(config->name_, standard.name_))                                           \
        fields[count++] = VX_LOG_TEXT(#name_, config->name_);
#define VX_I64(name_, default_, min_, max_, unit_, help_)                                \
    if (config->name_ != standard.name_)                                                 \
        fields[count++] = VX_LOG_I64(#name_, config->name_);
#define VX_FLAG(name_, default_, help_)                                                  \
    if (config->name_ != standard.name_)                                                 \
        fields[count++] = VX_LOG_TEXT(#name_, config->name_ ? "true" : "false");
#define VX_ENUM(name_, default_, choices_, help_)                                        \
    VX_TEXT(name_, default_, choices_, help_)
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
    return count;
}

void vx_config_log(const struct vx_config *config)
{
    struct vx_log_field fields[VX_CONFIG_SETTINGS];
    int count = changed_fields(config, fields);
    if (count) vx_log_write(VX_EVENT_CONFIG, fields, count);
}

size_t vx_config_changed(const struct vx_config *config, char *out, size_t bytes)
{
    struct vx_log_field fields[VX_CONFIG_SETTINGS];
    struct vx_text text;
    vx_text_init(&text, out, bytes);
    int count = changed_fields(config, fields);
    for (int i = 0; i < count; i++) {
        if (fields[i].kind == VX_LOG_FIELD_I64)
            vx_text_print(&text, "%s %lld\n", fields[i].key, (long long)fields[i].number);
        else
            vx_text_print(&text, "%s %s\n", fields[i].key, fields[i].text);
    }
    if (!count) vx_text_add(&text, "every setting has its default\n");
    return text.needed + 1;
}

enum vx_log_level vx_config_log_level(const struct vx_config *config)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < VX_COUNT(names); i++)
        if (!strcmp(config->log_level, names[i])) return (enum vx_log_level)i;
    vx_panic(__FILE__, __LINE__, "log_level is one of config.def's choices");
}

const char *vx_config_number_text(i64 number, const char *unit,
                                  char out[VX_CONFIG_NUMBER_BYTES])
{
    static const struct {
        const char *unit, *text;
        i64 times;
    } steps[] = {{"bytes", "T", INT64_C(1) << 40},
                 {"bytes", "G", INT64_C(1) << 30},
                 {"bytes", "M", INT64_C(1) << 20},
                 {"bytes", "K", INT64_C(1) << 10},
                 {"ms", "s", 1000},
                 {"ms", "ms", 1},
                 {"us", "s", 1000000},
                 {"us", "ms", 1000},
                 {"us", "us", 1}};
    snprintf(out, VX_CONFIG_NUMBER_BYTES, "%lld", (long long)number);
    for (size_t i = 0; number && i < VX_COUNT(steps); i++) {
        if (strcmp(steps[i].unit, unit) || number % steps[i].times) continue;
        snprintf(out, VX_CONFIG_NUMBER_BYTES, "%lld%s",
                 (long long)(number / steps[i].times), steps[i].text);
        break;
    }
    return out;
}
