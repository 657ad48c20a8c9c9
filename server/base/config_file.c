/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/config.h"

#include "server/base/text.h"

#include <stdio.h>
#include <string.h>

#define FILE_COLUMNS 100 /* of a comment */

/* ------- reading: what is not JSON becomes blanks, so that lines and columns stay ------- */

void vx_config_uncomment(char *text, size_t length)
{
    size_t last = length; /* the last byte that is not blank, outside of comments */
    for (size_t at = 0; at < length;) {
        size_t end = at, first;
        while (end < length && text[end] != '\n') end++;
        for (first = at; first < end && strchr(" \t\r", text[first]);) first++;
        if (end - first >= 2 && !memcmp(text + first, "//", 2))
            memset(text + first, ' ', end - first);
        for (size_t i = at; i < end; i++)
            if (!strchr(" \t\r", text[i])) last = i;
        at = end + 1;
    }
    if (last == length || text[last] != '}') return;
    size_t before = last;
    while (before && strchr(" \t\r\n", text[before - 1])) before--;
    if (before && text[before - 1] == ',') text[before - 1] = ' ';
}

/* ------- writing ------- */

/* `help` as comment lines. */
static void file_comment(struct vx_text *text, const char *help)
{
    size_t column = 0;
    while (*help) {
        size_t word = strcspn(help, " ");
        bool begins = !column || column + 1 + word > FILE_COLUMNS;
        if (begins) {
            vx_text_print(text, "%s  //", column ? "\n" : "");
            column = 4;
        }
        vx_text_print(text, " %.*s", (int)word, help);
        column += 1 + word;
        help += word + strspn(help + word, " ");
    }
    vx_text_add(text, "\n");
}

/* The setting as a line that takes effect when its slashes go. */
static void file_setting(struct vx_text *text, const char *name, const char *value,
                         bool quoted)
{
    vx_text_print(text, "  //\"%s\": %s", name, quoted ? "\"" : "");
    vx_text_json(text, value);
    vx_text_print(text, "%s,\n\n", quoted ? "\"" : "");
}

static void file_number(struct vx_text *text, const char *name, const i64 numbers[3],
                        const char *unit, const char *help)
{
    char standard[VX_CONFIG_NUMBER_BYTES], low[VX_CONFIG_NUMBER_BYTES];
    char high[VX_CONFIG_NUMBER_BYTES], all[1024];
    vx_config_number_text(numbers[0], unit, standard);
    snprintf(all, sizeof all, "%s (%s, from %s to %s)", help, unit,
             vx_config_number_text(numbers[1], unit, low),
             vx_config_number_text(numbers[2], unit, high));
    file_comment(text, all);
    bool plain = standard[strspn(standard, "0123456789")] == '\0';
    file_setting(text, name, standard, !plain);
}

static void file_choice(struct vx_text *text, const char *name, const char *standard,
                        const char *choices, const char *help)
{
    char all[1024];
    snprintf(all, sizeof all, "%s (%s)", help, choices);
    file_comment(text, all);
    file_setting(text, name, standard, true);
}

size_t vx_config_file(char *out, size_t bytes)
{
    struct vx_text text;
    vx_text_init(&text, out, bytes);
    vx_text_add(&text, "// voxeld's settings, for voxeld serve --config FILE.  Each "
                       "stands here with its "
                       "default; to\n"
                       "// change one, take away the slashes before its name.  A flag of "
                       "the command line "
                       "counts more.\n"
                       "// A line that begins with // is a comment.  To try a file: "
                       "voxeld config --check "
                       "--config FILE\n{\n");
#define VX_GROUP(title_) vx_text_print(&text, "  // ------- %s -------\n\n", title_);
#define VX_TEXT(name_, default_, unit_, help_)                                           \
    file_comment(&text, help_);                                                          \
    file_setting(&text, #name_, default_, strcmp(unit_, "share") != 0);
#define VX_I64(name_, default_, min_, max_, unit_, help_)                                \
    file_number(&text, #name_, (const i64[]){default_, min_, max_}, unit_, help_);
#define VX_FLAG(name_, default_, help_)                                                  \
    file_comment(&text, help_);                                                          \
    file_setting(&text, #name_, (default_) ? "true" : "false", false);
#define VX_ENUM(name_, default_, choices_, help_)                                        \
    file_choice(&text, #name_, default_, choices_, help_);
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
    vx_text_add(&text, "}\n");
    return text.needed + 1;
}
