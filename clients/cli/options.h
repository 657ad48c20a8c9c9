/* options - parses and checks a command's options and prints --help, all from one table.
 *
 *   const char *model = NULL;
 *   const struct option options[] = {
 *       {"model", 'm', "NAME", OPTION_TEXT, &model, {0, 0}, "the model to run"}};
 *   const struct command command = {.name = "infer", .options = options, ...};
 *   int code;
 *   if (!options_parse(&command, argc, argv, &code)) return code;
 *
 * Owner    values point into argv.
 * Thread   main.
 * Limits   64 options per command.
 * Fails    prints what was expected and returns false with the exit code to use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_OPTIONS_H
#define VOXEL_CLIENTS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program returns to the shell. */
enum cli_exit {
    CLI_DONE = 0,
    CLI_REFUSED = 1, /* the server refused, or cannot be reached */
    CLI_USAGE = 2    /* wrong options, or a file that cannot be read or written */
};

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_INT, OPTION_REAL };

struct option {
    const char *name;  /* without the dashes */
    char letter;       /* 0 = none */
    const char *value; /* the value's name in the help; NULL for a flag */
    enum option_kind kind;
    void *to;        /* a bool, const char *, int64_t or double; holds the default */
    double range[2]; /* lowest and highest number */
    const char *help;
};

struct command {
    const char *name;
    const char *synopsis; /* printed after the name */
    const char *about;
    const char *after; /* printed below the options: examples */
    const struct option *options;
    size_t options_count;
    const char **positional; /* NULL = none allowed */
    size_t positional_count; /* how many it has room for; 0 = one */
    uint64_t *given;         /* out, may be NULL: bit i is set if option i is given */
};

/* argv[0] is the command's name.  False after an error and after --help, with the exit
 * code in *code. */
bool options_parse(const struct command *command, int argc, char **argv, int *code);

/* Prints "--name: expected ..., not 'text'" on stderr; returns CLI_USAGE. */
int options_bad(const struct command *command, const char *name, const char *expected,
                const char *text);

/* An option that has no effect together with the others, if `idle`. */
struct option_idle {
    const char *name;
    bool idle;
    const char *why; /* printed after "has no effect: " */
};
/* If an idle option is given, names it on stderr and returns CLI_USAGE; else CLI_DONE. */
int options_refuse_idle(const struct command *command, const struct option_idle *idle,
                        size_t count);

#endif
