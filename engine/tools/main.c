/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

/* voxeld-tools: the tools alone, for a machine that has a GPU but no gRPC. */
int main(int argc, char **argv)
{
    vx_engine_has_tools("voxeld-tools");
    return vx_engine_tool(argc - 1, argv + 1);
}
