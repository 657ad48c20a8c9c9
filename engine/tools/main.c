/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/print.h"
#include "engine/engine.h"

/* voxeld-tools: the tools alone, for a machine that has a GPU but no gRPC. */
int main(int argc, char **argv)
{
    vx_engine_has_tools("voxeld-tools");
    int code = vx_engine_tool(argc - 1, argv + 1);
    if (vx_print_end()) return code;
    vx_print_error("voxeld-tools: standard output could not be written\n");
    return code ? code : 1;
}
