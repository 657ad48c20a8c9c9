/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/deliver.h"

#include "clients/cli/axes.h"
#include "clients/cli/commands.h"
#include "clients/cli/save.h"
#include "clients/cli/sparse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names the output if there are several, since the file's name does not tell. */
static void say_wrote(const struct delivery *delivery, const char *path,
                      const struct voxel_answer *answer,
                      const struct voxel_tensor *output)
{
    if (delivery->quiet) return;
    if (answer->outputs_count == 1)
        printf("wrote %s\n", path);
    else
        printf("wrote %s: output %s (--output NAME takes another)\n", path, output->name);
}

/* Writes the output and, if the format has none beside it, the file of its coords. */
static int write_one(const struct delivery *delivery, const struct cloud *own,
                     const struct voxel_answer *answer, const struct voxel_tensor *output)
{
    struct voxel_error error;
    struct save_beside beside;
    cli_progress("writing");
    if (save_output(delivery->out, own, output, &beside, &error))
        return cli_say_input("infer", &error);
    cli_progress(NULL);
    say_wrote(delivery, delivery->out, answer, output);
    if (!delivery->quiet && *beside.path)
        printf("wrote %s: the coords of each row (the sample, then three axes)\n",
               beside.path);
    return CLI_DONE;
}

static int write_all(const struct delivery *delivery, const struct cloud *cloud,
                     const struct voxel_answer *answer)
{
    struct voxel_error error;
    cli_progress("writing");
    if (save_all(delivery->out, cloud, answer, &error))
        return cli_say_input("infer", &error);
    cli_progress(NULL);
    if (!delivery->quiet)
        printf("wrote %s: all %" PRId32 " outputs (--output NAME takes one)\n",
               delivery->out, answer->outputs_count);
    return CLI_DONE;
}

static int draw(const struct delivery *delivery, const struct cloud *seen,
                const struct voxel_answer *answer, const struct voxel_tensor *output)
{
    struct voxel_error error;
    const struct render_scene scene = {
        .cloud = seen, .output = output, .sample = delivery->sample};
    cli_progress("drawing");
    if (render_png(delivery->picture, &scene, delivery->view, &error))
        return cli_say_input("infer", &error);
    cli_progress(NULL);
    say_wrote(delivery, delivery->picture, answer, output);
    return CLI_DONE;
}

/* NumPy's files get the columns that were sent, a .ply and a picture x, y and z. */
static int deliver_output(const struct delivery *delivery, const struct cloud *cloud,
                          const struct voxel_answer *answer,
                          const struct voxel_tensor *output)
{
    struct voxel_error error;
    struct cloud own, seen;
    if (sparse_cloud(cloud, answer, output, &own, &error) ||
        cloud_see(&own, &seen, &error))
        return cli_say_input("infer", &error);
    const char *ending = delivery->out ? strrchr(delivery->out, '.') : NULL;
    const bool is_ply = ending && strcmp(ending, ".ply") == 0;
    int code = CLI_DONE;
    if (delivery->out && !delivery->output && save_takes_all(delivery->out, answer))
        code = write_all(delivery, cloud, answer);
    else if (delivery->out)
        code = write_one(delivery, is_ply ? &seen : &own, answer, output);
    if (!code && delivery->picture) code = draw(delivery, &seen, answer, output);
    cloud_unsee(&own, &seen);
    return code;
}

int deliver(const struct delivery *delivery, const struct cloud *cloud,
            const struct voxel_answer *answer)
{
    if (!delivery->out && !delivery->picture) return CLI_DONE;
    if (answer->outputs_count == 0) {
        fprintf(stderr, "voxel infer: the answer has no output\n");
        return CLI_REFUSED;
    }
    const struct voxel_tensor *output = &answer->outputs[0];
    if (delivery->output) output = voxel_answer_find(answer, delivery->output);
    if (!output) {
        fprintf(stderr, "voxel infer: the answer has no output '%s'\n", delivery->output);
        return CLI_REFUSED;
    }
    return deliver_output(delivery, cloud, answer, output);
}
