/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/commands.h"

#include <errno.h>
#include <grpc/support/log.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"infer", command_infer, "send voxels through a model; save and draw the answer"},
    {"models", command_models, "list a server's models"},
    {"status", command_status, "show whether a server is ready, and what it has done"},
    {"bench", command_bench, "measure throughput and latency"},
    {"perf-data", command_perf_data, "write grids for perf_analyzer"},
    {"diff", command_diff,
     "compare two runs of a network, layer by layer; needs no server"},
};

static void print_usage(FILE *to)
{
    fprintf(to, "usage: voxel COMMAND [options]\n\n");
    fprintf(
        to,
        "Talks to voxeld, or to any Open Inference Protocol v2 server, over gRPC.\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(to,
            "\n`voxel COMMAND --help` has the options and examples; the server is at\n"
            "127.0.0.1:8001 unless --server sets another address.\n");
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("voxel %s (commit %s)\n", VX_VERSION, VX_COMMIT);
        return CLI_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, argv[1]) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "voxel: there is no command '%s'\n\n", argv[1]);
    print_usage(stderr);
    return CLI_USAGE;
}

/* gRPC logs what a handshake lacks in words of its own, before our errors say what to do. */
static void log_nothing(gpr_log_func_args *said)
{
    (void)said;
}

/* What a full disk has cut must not look like all of it. */
int main(int argc, char **argv)
{
    gpr_set_log_function(log_nothing);
    int code = run(argc, argv);
    bool was_good = !ferror(stdout);
    if (!fflush(stdout) && was_good) return code;
    fprintf(stderr, "voxel: standard output could not be written: %s\n",
            was_good ? strerror(errno) : "an earlier line was lost");
    return code == CLI_DONE ? CLI_USAGE : code;
}
