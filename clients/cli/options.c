/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/options.h"

#include "clients/cli/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_option(const struct option *option)
{
    char left[40];
    char letter[4] = "  ";
    if (option->letter) snprintf(letter, sizeof letter, "-%c", option->letter);
    snprintf(left, sizeof left, "%s%s --%s %s", letter, option->letter ? "," : " ",
             option->name, option->value ? option->value : "");
    printf("  %-26s %s", left, option->help);
    if (option->kind == OPTION_INT && *(int64_t *)option->to > 0)
        printf(" [%lld]", (long long)*(int64_t *)option->to);
    if (option->kind == OPTION_REAL && *(double *)option->to > 0)
        printf(" [%g]", *(double *)option->to);
    if (option->kind == OPTION_TEXT && *(const char **)option->to)
        printf(" [%s]", *(const char **)option->to);
    printf("\n");
}

static void print_help(const struct command *command)
{
    printf("usage: voxel %s %s\n\n%s\n\noptions:\n", command->name, command->synopsis,
           command->about);
    for (size_t i = 0; i < command->options_count; i++)
        print_option(&command->options[i]);
    printf("  -h, --help                 this text\n");
    if (command->after) printf("\n%s\n", command->after);
}

int options_bad(const struct command *command, const char *name, const char *expected,
                const char *text)
{
    fprintf(stderr, "voxel %s: --%s: expected %s, not '%s'\n", command->name, name,
            expected, text);
    return CLI_USAGE;
}

static const struct option *find_option(const struct command *command,
                                        const char *argument, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < command->options_count; i++) {
        const struct option *option = &command->options[i];
        size_t length = strlen(option->name);
        if (argument[1] == '-' && strncmp(argument + 2, option->name, length) == 0) {
            const char *rest = argument + 2 + length;
            if (*rest == '=') *value = rest + 1;
            if (*rest == '=' || *rest == '\0') return option;
        }
        if (argument[1] != '-' && option->letter && argument[1] == option->letter &&
            argument[2] == '\0')
            return option;
    }
    return NULL;
}

static bool set_number(const struct command *command, const struct option *option,
                       const char *value, int *code)
{
    char expected[96];
    double number;
    const char *behind = number_read(value, &number);
    bool good = behind && *behind == '\0' && number >= option->range[0] &&
                number <= option->range[1];
    if (option->kind == OPTION_INT) {
        char *end;
        errno = 0;
        long long whole = strtoll(value, &end, 10);
        good = good && *end == '\0' && errno == 0;
        if (good) *(int64_t *)option->to = whole;
        snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f",
                 option->range[0], option->range[1]);
    } else {
        if (good) *(double *)option->to = number;
        snprintf(expected, sizeof expected, "a number from %g to %g", option->range[0],
                 option->range[1]);
    }
    if (!good) *code = options_bad(command, option->name, expected, value);
    return good;
}

static bool set_option(const struct command *command, const struct option *option,
                       const char *value, int *code)
{
    if (option->kind == OPTION_FLAG) {
        if (!value) {
            *(bool *)option->to = true;
            return true;
        }
        fprintf(stderr, "voxel %s: --%s takes no value\n", command->name, option->name);
        *code = CLI_USAGE;
        return false;
    }
    if (option->kind != OPTION_TEXT) return set_number(command, option, value, code);
    *(const char **)option->to = value;
    return true;
}

static bool take_positional(const struct command *command, const char *argument,
                            int *code)
{
    size_t room = command->positional_count ? command->positional_count : 1;
    for (size_t i = 0; command->positional && i < room; i++) {
        if (command->positional[i]) continue;
        command->positional[i] = argument;
        return true;
    }
    fprintf(stderr, "voxel %s: unexpected argument '%s' (see voxel %s --help)\n",
            command->name, argument, command->name);
    *code = CLI_USAGE;
    return false;
}

static void mark_given(const struct command *command, const struct option *option)
{
    if (command->given) *command->given |= 1ull << (option - command->options);
}

int options_refuse_idle(const struct command *command, const struct option_idle *idle,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t o = 0; o < command->options_count && idle[i].idle; o++) {
            if (strcmp(command->options[o].name, idle[i].name) != 0) continue;
            if (!(*command->given >> o & 1)) continue;
            fprintf(stderr, "voxel %s: --%s has no effect: %s\n", command->name,
                    idle[i].name, idle[i].why);
            return CLI_USAGE;
        }
    return CLI_DONE;
}

bool options_parse(const struct command *command, int argc, char **argv, int *code)
{
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        const char *value;
        if (only_positional || argument[0] != '-' || argument[1] == '\0') {
            if (!take_positional(command, argument, code)) return false;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            print_help(command);
            *code = CLI_DONE;
            return false;
        }
        const struct option *option = find_option(command, argument, &value);
        if (!option) {
            fprintf(stderr, "voxel %s: there is no option '%s' (see voxel %s --help)\n",
                    command->name, argument, command->name);
            *code = CLI_USAGE;
            return false;
        }
        if (option->kind != OPTION_FLAG && !value) {
            if (i + 1 == argc) {
                *code = options_bad(command, option->name, option->value, "nothing");
                return false;
            }
            value = argv[++i];
        }
        if (!set_option(command, option, value, code)) return false;
        mark_given(command, option);
    }
    return true;
}
