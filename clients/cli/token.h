/* token - the token of a command: of --token-file, else of the environment's VOXEL_TOKEN.
 *
 * A token never is an option's value: other users of the host see a program's options.
 *
 *   int code = cli_token_get("infer", file, server, &options);
 *   if (code) return code;
 *
 * Owner    a static buffer; the library copies the token.
 * Thread   main.
 * Limits   VOXEL_TOKEN_BYTES_MAX.
 * Fails    CLI_USAGE for a file that cannot be read or holds no token; it says why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_TOKEN_H
#define VOXEL_CLIENTS_CLI_TOKEN_H

#include "clients/c/voxel.h"

/* The row of every command that asks a server, for its .def or table. */
#define CLI_TOKEN_HELP                                                                   \
    "file with the token to send; default: the environment's VOXEL_TOKEN, if it is set"

/* `file` NULL: not given.  Sets options->token, to NULL if there is none.  Warns if the token
 * goes over the network in plain text, so options->tls is set before. */
int cli_token_get(const char *command, const char *file, const char *server,
                  struct voxel_options *options);

#endif
