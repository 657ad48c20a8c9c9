/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/tools.h"

#include "engine/base/process/check.h"
#include "engine/base/process/print.h"
#include "engine/base/text/typed.h"
#include "server/base/config.h"
#include "server/front/front.h"

#include <string.h>

#define FILE_BYTES 32768 /* every setting and its explanation are about 14 KiB */

static const char config_usage[] =
    "voxeld config\n"
    "voxeld config --check [settings]\n"
    "\n"
    "Prints a configuration file for voxeld serve --config, with every setting "
    "explained.\n"
    "With --check it takes settings as voxeld serve does, --config FILE among them, and\n"
    "prints those that differ from their default. Exit code 2: one is wrong, as it would "
    "be\n"
    "for voxeld serve, which ends with 2 as well; the reason is printed. It opens "
    "nothing "
    "but\n"
    "the file: whether directories, ports, hosts and devices are there shows in the "
    "start.\n";

int vx_tool_config(int count, char **arguments)
{
    static struct vx_config config;
    struct vx_why why = {""};
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", config_usage);
        return 0;
    }
    if (!count) {
        static char file[FILE_BYTES];
        VX_ASSERT(vx_config_file(file, sizeof file) <= sizeof file);
        vx_print("%s", file);
        return 0;
    }
    if (strcmp(arguments[0], "--check") != 0) {
        vx_print_error("voxeld config: expected --check or nothing, got \"%s\"\n",
                       arguments[0]);
        return 2;
    }
    vx_status st = vx_config_parse(count - 1, arguments + 1, &why, &config);
    if (!st.fault) st = vx_config_check(&config, &why);
    if (!st.fault) st = vx_front_expect(&config, &why);
    if (st.fault) {
        vx_print_error("voxeld: %s\n", vx_status_text(st, &why));
        return 2;
    }
    static char changed[FILE_BYTES];
    vx_config_changed(&config, changed, sizeof changed);
    vx_print("%s", changed);
    return 0;
}
