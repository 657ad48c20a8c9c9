/* tools - programs for a person at a terminal that need no server.
 *
 *   voxeld compile --arch sm_90a --all --cache DIR
 *   voxeld devices
 *
 * Each takes its arguments behind its own name and returns an exit code: 0 good, 1 it
 * failed and said why, 2 it was asked wrongly.
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

#endif
