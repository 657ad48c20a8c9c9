/* main - the one binary: which subcommand, then its exit code.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/log.h"
#include "engine/base/print.h"
#include "engine/engine.h"
#include "server/config.h"
#include "server/devices.h"
#include "server/front.h"
#include "server/host.h"
#include "server/tools.h"
#include "server/worker.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HELP_BYTES 32768 /* the settings table as text is about 9 KiB */

static const char usage[] =
    "voxeld " VX_VERSION
    " serves sparse voxel networks over gRPC (Open Inference Protocol v2).\n"
    "\n"
    "  voxeld serve --repository DIR [settings]   serve every model in DIR; see voxeld "
    "serve --help\n"
    "  voxeld check MODEL_DIRECTORY [VERSION]     read and check a model, print its "
    "layers\n"
    "  voxeld devices                             list the GPUs of this machine\n"
    "  voxeld compile --arch ARCH --model DIR     fill a kernel cache ahead of time; "
    "needs "
    "no GPU\n"
    "  voxeld tune [--device cuda:0]              measure tiles on this GPU, for "
    "--tune-table\n"
    "  voxeld bench [--device cuda:0]             time convolutions on this GPU\n"
    "  voxeld health [--http HOST:PORT]           exit 0 when the server there is "
    "ready\n"
    "  voxeld --version\n";

/* Settings from `arguments`; on failure says why and returns false. */
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
    return true;
}

static int main_serve(int count, char **arguments)
{
    static struct vx_config config; /* outlives every thread */
    for (int i = 0; i < count; i++) {
        if (strcmp(arguments[i], "--help")) continue;
        static char help[HELP_BYTES];
        vx_config_help(help, sizeof help);
        vx_print("%s", help);
        return 0;
    }
    if (!main_configure(count, arguments, "front", &config)) return 2;
    if (!config.repository[0]) {
        vx_print_error(
            "voxeld serve: --repository DIR is missing: where the models are\n");
        return 2;
    }
    VX_LOG(START, VX_LOG_TEXT("version", VX_VERSION), VX_LOG_I64("pid", getpid()));
    vx_config_log(&config);
    vx_host_raise_files();
    return vx_front_run(&config);
}

static int main_worker(int count, char **arguments)
{
    static struct vx_config config;
    if (!main_configure(count, arguments, "worker", &config)) return 2;
    return vx_worker_run(&(struct vx_worker_start){
        .config = &config, .channel = VX_WORKER_CHANNEL_FD, .arena = VX_WORKER_ARENA_FD});
}

/* Started by the front, which must not load a GPU driver itself. */
static int main_probe(int count, char **arguments)
{
    static struct vx_config config;
    if (!main_configure(count, arguments, "probe", &config)) return 2;
    return vx_devices_probe(&config);
}

static bool is_engine_tool(const char *command)
{
    return !strcmp(command, "compile") || !strcmp(command, "tune") ||
           !strcmp(command, "bench") || !strcmp(command, "devices");
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "--help";
    int count = argc > 2 ? argc - 2 : 0;
    char **arguments = argv + (argc > 2 ? 2 : argc);
    if (!strcmp(command, "serve")) return main_serve(count, arguments);
    if (!strcmp(command, "worker")) return main_worker(count, arguments);
    if (!strcmp(command, "probe")) return main_probe(count, arguments);
    if (is_engine_tool(command)) return vx_engine_tool(argc - 1, argv + 1);
    if (!strcmp(command, "check")) return vx_tool_check(count, arguments);
    if (!strcmp(command, "health")) return vx_tool_health(count, arguments);
    if (!strcmp(command, "--version")) {
        vx_print("voxeld %s\n", VX_VERSION);
        return 0;
    }
    if (!strcmp(command, "--help")) {
        vx_print("%s", usage);
        return argc > 1 ? 0 : 2;
    }
    vx_print_error("voxeld: unknown command '%s'\n\n%s", command, usage);
    return 2;
}
