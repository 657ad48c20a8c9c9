/* tools - the small subcommands: check a model, ask a running server whether it is ready.
 *
 *   voxeld check DIRECTORY [VERSION]     reads and checks a model, prints its layers
 *   voxeld health [--http HOST:PORT]     exit code 0 when /v2/health/ready says 200
 *
 * Owner    nothing outlives a call.
 * Thread   any; these processes serve nothing.
 * Fails    exit code 1 with a sentence on standard error; 2 for wrong arguments.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TOOLS_H
#define VX_SERVER_TOOLS_H

/* Arguments behind the subcommand's name; the exit code of the process. */
int vx_tool_check(int count, char **arguments);
int vx_tool_health(int count, char **arguments);

#endif
