/* tools - small subcommands: check a model, show or check settings, ask a server whether it
 * is ready.
 *
 *   voxeld check DIRECTORY [VERSION]     reads and checks versions, prints layers
 *   voxeld config [--check settings]     prints a configuration file, or checks settings
 *   voxeld token new|check               makes a token, or checks the file of tokens
 *   voxeld health [--http HOST:PORT]     exit code 0 when /v2/health/ready says 200
 *
 * Owner    nothing outlives a call.
 * Thread   any; these processes serve nothing.
 * Fails    exit code 1 with the reason; 2 for wrong arguments.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TOOLS_H
#define VX_SERVER_TOOLS_H

/* The columns of coords, for several help texts. */
#define VX_TOOL_COORDS                                                                   \
    "Coordinates are INT32 [N, 4]: column 0 is the sample, 0 to 511; columns 1 to 3 "    \
    "are\n"                                                                              \
    "the voxel, each -131072 to 131071, in the order that the network was trained "      \
    "with\n"                                                                             \
    "(spconv's [b, z, y, x] unchanged, or [b, x, y, z]): a kernel's three numbers "      \
    "follow\n"                                                                           \
    "these columns. [N, 3] means sample 0: a network of two axes gets [b, y, x, 0].\n"   \
    "Features are [N, C], row by row.\n"

/* `arguments` come after the subcommand's name; returns the exit code of the process. */
int vx_tool_check(int count, char **arguments);
int vx_tool_config(int count, char **arguments);
int vx_tool_token(int count, char **arguments);
int vx_tool_health(int count, char **arguments);

#endif
