/* commands - the commands of the program `voxel`, and what they share.
 *
 *   return command_infer(argc, argv); // argv[0] is "infer"
 *
 * Owner    each command owns what it opens and releases it before it returns.
 * Thread   main.
 * Limits   none.
 * Fails    every command returns an exit code of options.h and says why on stderr.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_COMMANDS_H
#define VOXEL_CLIENTS_CLI_COMMANDS_H

#include "clients/c/voxel.h"
#include "clients/cli/cloud.h"
#include "clients/cli/options.h"

#define CLI_SERVER "127.0.0.1:8001"

int command_infer(int argc, char **argv);
int command_models(int argc, char **argv);
int command_status(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_perf_data(int argc, char **argv);

/* Prints "voxel COMMAND: CODE: sentence", and what to do when the server is not there.
 * Returns the exit code that fits the error. */
int cli_say_error(const char *command, const char *server,
                  const struct voxel_error *error);
/* An error of files or input: the sentence alone, and CLI_USAGE. */
int cli_say_input(const char *command, const struct voxel_error *error);

/* On stderr, what was done to a file's points: merged, left out, scaled. */
void cli_say_cloud(const char *command, const char *file, const struct cloud *cloud);

/* One line on stderr that the next replaces, if that is a terminal; NULL wipes it. */
void cli_progress(const char *text);

/* "1.5 MB"; the result lives until the fourth call after. */
const char *cli_bytes(uint64_t bytes);
/* "FP32 [-1, 3]"; likewise. */
const char *cli_shape(const char *type, const int64_t *shape, int32_t rank);

/* The two inputs of a model that takes voxels. */
struct model_inputs {
    const struct voxel_tensor_info *coords;
    const struct voxel_tensor_info *feats;
    int32_t columns;      /* of coords: 3 or 4 */
    int32_t channels;     /* of feats */
    enum voxel_type type; /* of feats */
};
/* `dtype` is a wire name for feats or NULL (as the model says); `channels` is what the
 * caller has, 0 = any. */
enum voxel_code model_inputs_find(const struct voxel_model_info *info, const char *dtype,
                                  int32_t channels, struct model_inputs *inputs,
                                  struct voxel_error *error);

/* Whether every output is what the model says of it; INTERNAL when not. */
enum voxel_code answer_check_model(const struct voxel_answer *answer,
                                   const struct voxel_model_info *info,
                                   struct voxel_error *error);

/* A cloud as the two tensors; the memory is the caller's, see request_tensors_fini. */
struct request_tensors {
    struct voxel_tensor list[2];
    void *memory[2];
};
/* Without feats in the cloud all are 1: bare occupancy. */
enum voxel_code request_tensors_make(const struct cloud *cloud,
                                     const struct model_inputs *inputs,
                                     struct request_tensors *tensors,
                                     struct voxel_error *error);
void request_tensors_fini(struct request_tensors *tensors);

#endif
