/* config - every setting, parsed once into a struct that does not change afterwards.
 *
 * config.def is the only list: this struct, the flags, the file's keys, --help, the range
 * checks and the log line of settings that differ from their default all come from it.
 * Settings never come from the environment, so a process's command line and file show
 * all of them.
 *
 *   struct vx_config config;
 *   vx_status st = vx_config_parse(argc - 2, argv + 2, &why, &config);
 *   if (st.fault) ...print vx_status_text(st, &why)...
 *   serve(config.grpc, config.queue_max);
 *
 * A flag takes precedence over the file of --config FILE, and the file over the default.
 * When a flag is given twice the last one applies, except that repository and load_model
 * are refused.  The file is one JSON object with the names of config.def as keys; a
 * number with a unit is written as a text.  Lines that begin with // are comments, and the
 * last setting may have a comma behind it.
 *
 * Owner    the caller; all texts are inside the struct, which may be copied.
 * Thread   parse: one at a time, before threads start; reading: any.
 * Limits   VX_CONFIG_TEXT_BYTES a text, VX_CONFIG_FILE_BYTES_MAX the file.
 * Fails    INVALID_ARGUMENT for a bad flag, key or value; NOT_FOUND for the file.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CONFIG_H
#define VX_SERVER_CONFIG_H

#include "engine/base/process/log.h"
#include "engine/base/status.h"

/* Longest text, with its NUL; paths on real machines need a quarter of it. */
#define VX_CONFIG_TEXT_BYTES 1024
/* A file with every setting and its longest text is under 16 KiB. */
#define VX_CONFIG_FILE_BYTES_MAX 65536

/* Which settings were set by a flag or the file, also if to the default. */
struct vx_config_said {
#define VX_GROUP(title_)
#define VX_TEXT(name_, default_, unit_, help_)            bool name_;
#define VX_I64(name_, default_, min_, max_, unit_, help_) bool name_;
#define VX_FLAG(name_, default_, help_)                   bool name_;
#define VX_ENUM(name_, default_, choices_, help_)         bool name_;
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
};

/* How many settings there are. */
enum {
    VX_CONFIG_SETTINGS = 0
#define VX_GROUP(title_)
#define VX_TEXT(name_, default_, unit_, help_)            +1
#define VX_I64(name_, default_, min_, max_, unit_, help_) +1
#define VX_FLAG(name_, default_, help_)                   +1
#define VX_ENUM(name_, default_, choices_, help_)         +1
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
};

/* How many rows config.def has: its groups, too. */
enum {
    VX_CONFIG_ROWS = 0
#define VX_GROUP(title_)                                  +1
#define VX_TEXT(name_, default_, unit_, help_)            +1
#define VX_I64(name_, default_, min_, max_, unit_, help_) +1
#define VX_FLAG(name_, default_, help_)                   +1
#define VX_ENUM(name_, default_, choices_, help_)         +1
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
};

/* Where the file of --config has a setting; line 0: nowhere, or a flag has replaced it. */
struct vx_config_place {
    i32 line, column;
};

struct vx_config {
    struct vx_config_said said;
    const char *file; /* --config's, borrowed from the arguments; NULL = none */
    struct vx_config_place places[VX_CONFIG_ROWS]; /* in the order of config.def */
#define VX_GROUP(title_)
#define VX_TEXT(name_, default_, unit_, help_)            char name_[VX_CONFIG_TEXT_BYTES];
#define VX_I64(name_, default_, min_, max_, unit_, help_) i64 name_;
#define VX_FLAG(name_, default_, help_)                   bool name_;
#define VX_ENUM(name_, default_, choices_, help_)         char name_[32];
#include "server/base/config.def"
#undef VX_GROUP
#undef VX_TEXT
#undef VX_I64
#undef VX_FLAG
#undef VX_ENUM
};

void vx_config_defaults(struct vx_config *config);
/* `arguments` are the flags alone, without program and subcommand. */
VX_MUST_USE vx_status vx_config_parse(int count, char **arguments, struct vx_why *why,
                                      struct vx_config *config);

/* A further check, for serving: refuses a setting that was set but has no effect because
 * of another.  Not for workers: the front passes them all of their settings. */
VX_MUST_USE vx_status vx_config_check(const struct vx_config *config, struct vx_why *why);

/* Puts the place in the file before an error that begins with the name of a setting which the
 * file has set, such as "device: expected ...". */
void vx_config_say_place(const struct vx_config *config, struct vx_why *why);

/* All settings as text for --help, in groups.  Returns the bytes it needs with the NUL;
 * with fewer in `out` the end is missing. */
size_t vx_config_help(char *out, size_t bytes);
/* A configuration file with every setting, explained, as a comment with its default; bytes
 * as in vx_config_help. */
size_t vx_config_file(char *out, size_t bytes);
/* Makes JSON of a configuration file, in place and without moving anything: lines that
 * begin with // become blank, and so does a comma behind the last setting. */
void vx_config_uncomment(char *text, size_t length);
/* As a person would write it: 2147483648 "bytes" is "2G", 30000 "ms" is "30s". */
#define VX_CONFIG_NUMBER_BYTES 32
const char *vx_config_number_text(i64 number, const char *unit,
                                  char out[VX_CONFIG_NUMBER_BYTES]);
/* The settings that differ from their default, a line each; bytes as in vx_config_help. */
size_t vx_config_changed(const struct vx_config *config, char *out, size_t bytes);
/* Logs one CONFIG line with the settings that differ from their default, if any do. */
void vx_config_log(const struct vx_config *config);
enum vx_log_level vx_config_log_level(const struct vx_config *config);

#endif
