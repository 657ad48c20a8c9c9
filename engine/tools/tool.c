/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/print.h"
#include "engine/base/text/typed.h"
#include "engine/base/types.h"
#include "engine/engine.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/tools/tools.h"
#include "engine/tools/workbench.h"

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
    {"record", vx_tool_record,
     "writes the result of each layer of a network, for voxel diff"},
    {VX_HIPRTC_COMMAND, vx_hiprtc_main, NULL}, /* the engine starts it */
};

static void print_tools(void (*print)(const char *format, ...))
{
    for (size_t i = 0; i < VX_COUNT(tools); i++)
        if (tools[i].what) print("  %-9s %s\n", tools[i].name, tools[i].what);
}

void vx_engine_has_tools(const char *program)
{
    vx_tool_program_set(program);
    vx_hiprtc_allow();
}

int vx_engine_tool(int count, char **arguments)
{
    const char *names[VX_COUNT(tools)];
    char nearest[VX_NEAREST_BYTES];
    for (size_t i = 0; i < VX_COUNT(tools); i++) {
        names[i] = tools[i].name;
        if (count > 0 && !strcmp(arguments[0], names[i]))
            return tools[i].run(count - 1, arguments + 1);
    }
    if (vx_help_asked(count, arguments)) {
        print_tools(vx_print);
        return 0;
    }
    if (count > 0)
        vx_print_error("unknown tool \"%s\"%s; the tools are:\n", arguments[0],
                       vx_nearest_text(arguments[0], names, VX_COUNT(names), nearest));
    print_tools(vx_print_error);
    return 2;
}
