/* tools - command-line tools that need no server.
 *
 *   voxeld compile --arch sm_90a --all --cache DIR
 *   voxeld devices
 *
 * Each function takes the arguments after the tool's name and returns the exit code:
 * 0 success, 1 failure, 2 wrong usage.  It prints the reason of a failure.
 *
 * Thread   main, alone in its process.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_TOOLS_H
#define VX_ENGINE_TOOLS_TOOLS_H

int vx_tool_compile(int count, char **arguments);
int vx_tool_tune(int count, char **arguments);
int vx_tool_bench(int count, char **arguments);
int vx_tool_devices(int count, char **arguments);
int vx_tool_record(int count, char **arguments);

#endif
