/* main - the one binary: runs the subcommand and returns its exit code.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"
#include "engine/base/process/print.h"
#include "engine/base/text/typed.h"
#include "engine/engine.h"
#include "server/base/config.h"
#include "server/base/host.h"
#include "server/confine/confine.h"
#include "server/devices/devices.h"
#include "server/front/front.h"
#include "server/front/room.h"
#include "server/ipc/channel.h"
#include "server/repository/repository.h"
#include "server/tools.h"
#include "server/worker/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HELP_BYTES 32768 /* the settings table as text is about 9 KiB */

static const char usage[] =
    "voxeld " VX_VERSION
    " serves sparse voxel networks over gRPC (Open Inference Protocol v2).\n"
    "\n"
    "  voxeld serve --repository DIR [settings]   serve every model in DIR\n"
    "  voxeld check MODEL_DIRECTORY [VERSION]     read and check a model's versions, "
    "print layers\n"
    "  voxeld devices                             list the GPUs of this machine\n"
    "  voxeld compile --arch ARCH --model DIR     fill a kernel cache ahead of time; "
    "needs no GPU\n"
    "  voxeld tune [--device cuda:0]              measure tiles on this GPU, for "
    "--tune-table\n"
    "  voxeld bench [--device cuda:0]             time convolutions on this GPU\n"
    "  voxeld record MODEL --example F.npz -o R   write the result of each layer, for "
    "voxel diff\n"
    "  voxeld config                              print a configuration file with every "
    "setting\n"
    "  voxeld token new NAME                      make a token for --tokens, and its "
    "entry\n"
    "  voxeld health [--http HOST:PORT]           exit 0 when the server there is "
    "ready\n"
    "  voxeld --version\n"
    "\n"
    "voxeld COMMAND --help explains each.\n"
    "\n" VX_TOOL_COORDS;

static const char serve_usage[] =
    "voxeld serve --repository DIR [settings]\n"
    "\n"
    "Serves DIR/NAME/network.json with "
    "DIR/NAME/VERSION/weights.safetensors, each as NAME.\n"
    "At most " VX_REPOSITORY_TEXT(
        VX_INSTANCES_MAX) " versions of models are loaded at once, in order of their "
                          "names; if there\n"
                          "are more, voxel status names them, and the server does not "
                          "become ready.\n"
                          "\n" VX_TOOL_COORDS "\n";

static const char worker_usage[] =
    "voxeld worker\n"
    "\n"
    "The process that owns a device. voxeld serve starts it with its settings and two\n"
    "inherited descriptors; it does nothing when it is started by hand.\n";

static const char probe_usage[] = "voxeld probe\n"
                                  "\n"
                                  "Prints the devices in the format that voxeld serve "
                                  "reads, which starts it.\n"
                                  "To list devices, use voxeld devices.\n";

/* Parses the settings and opens the log.  False on failure, which it prints. */
static bool main_configure(int count, char **arguments, const char *process,
                           struct vx_config *config)
{
    struct vx_why why = {""};
    vx_status st = vx_config_parse(count, arguments, &why, config);
    if (st.fault) {
        vx_print_error("voxeld: %s\n", vx_status_text(st, &why));
        return false;
    }
    vx_log_init(&(struct vx_log_options){.level = vx_config_log_level(config),
                                         .json = !strcmp(config->log_format, "json"),
                                         .fd = STDERR_FILENO},
                process);
    st = vx_log_open();
    if (st.fault) vx_print_error("voxeld: %s\n", vx_status_text(st, &why));
    return !st.fault;
}

/* False, and an event, when a limit of the system is too small; nothing is open yet. */
static bool main_has_room(const struct vx_config *config)
{
    struct vx_room room;
    struct vx_why why = {""};
    vx_room_get(&room);
    vx_status st = vx_room_check(config, vx_host_processors(), &room, &why);
    if (st.fault)
        VX_LOG(START_FAILED, VX_LOG_TEXT("code", vx_code_name(vx_status_code(st))),
               VX_LOG_TEXT("why", vx_status_text(st, &why)));
    else if (vx_room_advise(config, &room, &why))
        VX_LOG(MEMORY, VX_LOG_I64("memory_bytes", room.memory_bytes),
               VX_LOG_TEXT("why", why.text));
    return !st.fault;
}

/* NVIDIA's library makes missing device files with a setuid program when a worker opens its
 * device; the worker's filter takes privileges from it after that. */
static bool main_may_use_gpu(const struct vx_config *config)
{
    return strstr(config->device, "cuda") || strstr(config->device, "hip") ||
           strstr(config->device, "auto");
}

/* People send these to daemons that reopen their log or dump their state.  Here they mean nothing,
 * and must not end what serves. */
static void main_ignore_signals(void)
{
    (void)signal(SIGUSR1, SIG_IGN);
    (void)signal(SIGUSR2, SIG_IGN);
}

static int main_serve(int count, char **arguments)
{
    static struct vx_config config; /* outlives every thread */
    if (vx_help_asked(count, arguments)) {
        static char help[HELP_BYTES];
        vx_config_help(help, sizeof help);
        vx_print("%s%s", serve_usage, help);
        return 0;
    }
    vx_host_heap_open();
    vx_front_block_signals();
    main_ignore_signals();
    if (!main_configure(count, arguments, "front", &config)) return 2;
    /* gRPC keeps headers, and with them tokens, in its own memory. */
    vx_confine_cores(config.core_dumps && !config.tokens[0]);
    if (!main_may_use_gpu(&config)) vx_confine_privileges();
    struct vx_why why = {""};
    vx_status st = vx_config_check(&config, &why);
    if (!st.fault) st = vx_front_expect(&config, &why);
    if (st.fault) {
        vx_print_error("voxeld: %s\n", vx_status_text(st, &why));
        return 2;
    }
    if (!config.repository[0]) {
        vx_print_error(
            "voxeld serve: --repository DIR is missing; DIR is where the models are\n");
        return 2;
    }
    VX_LOG(START, VX_LOG_TEXT("version", VX_VERSION), VX_LOG_I64("pid", getpid()));
    vx_config_log(&config);
    vx_host_raise_files();
    if (!main_has_room(&config)) return 1;
    return vx_front_run(&config);
}

static int main_worker(int count, char **arguments)
{
    static struct vx_config config;
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", worker_usage);
        return 0;
    }
    main_ignore_signals();
    if (!main_configure(count, arguments, "worker", &config)) return 2;
    return vx_worker_run(&(struct vx_worker_start){.config = &config,
                                                   .channel = VX_WORKER_CHANNEL_FD,
                                                   .arena = VX_WORKER_ARENA_FD,
                                                   .is_process = true});
}

/* Started by the front, which must not load a GPU driver itself. */
static int main_probe(int count, char **arguments)
{
    static struct vx_config config;
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", probe_usage);
        return 0;
    }
    if (!main_configure(count, arguments, "probe", &config)) return 2;
    return vx_devices_probe(&config);
}

/* The engine expects the tool's name as first argument: it is in front of `arguments`. */
static int main_engine_tool(int count, char **arguments)
{
    return vx_engine_tool(count + 1, arguments - 1);
}

static const struct {
    const char *name;
    int (*run)(int count, char **arguments); /* the arguments after the name */
    bool own;                                /* voxeld starts it, not a person */
} commands[] = {
    {"serve", main_serve, false},         {"check", vx_tool_check, false},
    {"devices", main_engine_tool, false}, {"compile", main_engine_tool, false},
    {"tune", main_engine_tool, false},    {"bench", main_engine_tool, false},
    {"record", main_engine_tool, false},  {"health", vx_tool_health, false},
    {"config", vx_tool_config, false},    {"token", vx_tool_token, false},
    {"worker", main_worker, true},        {"probe", main_probe, true},
    {"hiprtc", main_engine_tool, true},
};

static int main_run(int argc, char **argv)
{
    const char *names[VX_COUNT(commands)];
    size_t names_count = 0;
    char nearest[VX_NEAREST_BYTES];
    if (argc < 2) {
        vx_print_error("%s", usage);
        return 2;
    }
    for (size_t i = 0; i < VX_COUNT(commands); i++) {
        if (!commands[i].own) names[names_count++] = commands[i].name;
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 2, argv + 2);
    }
    if (!strcmp(argv[1], "--version")) {
        vx_print("voxeld %s (commit %s)\n", VX_VERSION, VX_COMMIT);
        return 0;
    }
    if (vx_help_asked(1, argv + 1) || !strcmp(argv[1], "help")) {
        vx_print("%s", usage);
        return 0;
    }
    vx_print_error("voxeld: unknown command \"%s\"%s\n\n%s", argv[1],
                   vx_nearest_text(argv[1], names, names_count, nearest), usage);
    return 2;
}

/* What a full disk has cut must not look like all of it. */
int main(int argc, char **argv)
{
    vx_engine_has_tools("voxeld");
    int code = main_run(argc, argv);
    if (vx_print_end()) return code;
    vx_print_error("voxeld: standard output could not be written: %s\n", strerror(errno));
    return code ? code : 1;
}
