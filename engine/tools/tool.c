/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/print.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/tools/tools.h"

#include <string.h>

static const struct {
    const char *name;
    int (*run)(int count, char **arguments);
    const char *what;
} tools[] = {
    {"compile", vx_tool_compile,
     "fills the kernel cache for an architecture, no GPU needed"},
    {"tune", vx_tool_tune,
     "measures convolutions on this GPU and keeps the fastest tiles"},
    {"bench", vx_tool_bench, "times convolutions on this GPU"},
    {"devices", vx_tool_devices, "lists the GPUs of this machine"},
};

int vx_engine_tool(int count, char **arguments)
{
    for (size_t i = 0; count > 0 && i < VX_COUNT(tools); i++)
        if (!strcmp(arguments[0], tools[i].name))
            return tools[i].run(count - 1, arguments + 1);
    if (count > 0) vx_print_error("unknown tool '%s'; there are:\n", arguments[0]);
    for (size_t i = 0; i < VX_COUNT(tools); i++)
        vx_print_error("  %-9s %s\n", tools[i].name, tools[i].what);
    return 2;
}
