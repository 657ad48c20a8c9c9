/* commands - the commands of the program `voxel`, and the functions that they share.
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

/* The options of tls.def. */
struct cli_tls {
    bool on;
    struct voxel_tls files;
};
/* For voxel_options.tls: NULL when none of them is given. */
const struct voxel_tls *cli_tls_of(const struct cli_tls *tls);

int command_infer(int argc, char **argv);
int command_models(int argc, char **argv);
int command_status(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_perf_data(int argc, char **argv);
int command_diff(int argc, char **argv);

/* Prints "voxel COMMAND: CODE: sentence" on stderr, and a hint if no server answers.
 * Returns CLI_REFUSED. */
int cli_say_error(const char *command, const char *server,
                  const struct voxel_error *error);
/* The same for a request of `sent` bytes, when the connection has already answered. */
int cli_say_refused(const char *command, const char *server, uint64_t sent,
                    const struct voxel_error *error);
/* The tensors that lie in the message. */
uint64_t cli_request_bytes(const struct voxel_request *request);
/* For an error of files or input: prints "voxel COMMAND: sentence", returns CLI_USAGE. */
int cli_say_input(const char *command, const struct voxel_error *error);

/* Prints on stderr what was done to a file's points: merged, left out, scaled. */
void cli_say_cloud(const char *command, const char *file, const struct cloud *cloud,
                   bool quiet);

/* Shows a line on stderr, if that is a terminal, in place of the last; NULL wipes it. */
void cli_progress(const char *text);

/* Such as "1.5 MB".  Valid until four more calls of this function or of cli_shape. */
const char *cli_bytes(uint64_t bytes);
/* Such as "FP32 [-1, 3]"; valid as long as cli_bytes's result. */
const char *cli_shape(const char *type, const int64_t *shape, int32_t rank);

/* The two inputs of a model that takes voxels. */
struct model_inputs {
    const struct voxel_tensor_info *coords;
    const struct voxel_tensor_info *feats;
    int32_t columns;      /* of coords: 3 or 4 */
    int32_t channels;     /* of feats */
    enum voxel_type type; /* of feats */
};
/* Finds the inputs.  `dtype` is "fp32", "fp16" or "bf16", or NULL for the model's type of
 * feats; `channels` is the number that the caller has, 0 = any. */
enum voxel_code model_inputs_find(const struct voxel_model_info *info, const char *dtype,
                                  int32_t channels, struct model_inputs *inputs,
                                  struct voxel_error *error);

/* INTERNAL if an output's name, type or shape is not as the model's metadata says. */
enum voxel_code answer_check_model(const struct voxel_answer *answer,
                                   const struct voxel_model_info *info,
                                   struct voxel_error *error);

/* A cloud as the two input tensors, coords first. */
struct request_tensors {
    struct voxel_tensor list[2];
    void *memory[2];
};
/* Fills the tensors; the caller releases them with request_tensors_fini.  If the cloud
 * has no feats, all are 1. */
enum voxel_code request_tensors_make(const struct cloud *cloud,
                                     const struct model_inputs *inputs,
                                     struct request_tensors *tensors,
                                     struct voxel_error *error);
void request_tensors_fini(struct request_tensors *tensors);

#endif
