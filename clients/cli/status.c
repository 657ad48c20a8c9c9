/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/limits.h"
#include "clients/cli/commands.h"
#include "clients/cli/plain.h"
#include "clients/cli/token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The deadline of each call. */
#define ASK_US 10000000
/* The pause between two checks while waiting until the server is ready. */
#define LOOK_NS 50000000

/* Which server to ask, and how. */
struct ask {
    const char *server, *token_file;
    struct cli_tls tls;
    double wait_s;
};

#define VX_OPTION(name_, letter_, value_, kind_, member_, low_, high_, help_)            \
    {name_, letter_, value_, OPTION_##kind_, &ask.member_, {low_, high_}, help_},

/* Of limits.voxels_max in network.json, where nothing else bounds a model. */
#define VOXELS_MAX_DEFAULT 4194304

static int open_client(const char *command, const struct ask *ask,
                       struct voxel_client **client)
{
    struct voxel_error error;
    struct voxel_options options = {.deadline_us = ASK_US, .tls = cli_tls_of(&ask->tls)};
    int code = cli_token_get(command, ask->token_file, ask->server, &options);
    if (code) return code;
    if (voxel_client_open(ask->server, &options, client, &error))
        return cli_say_input(command, &error);
    return CLI_DONE;
}

static void print_tensors(const char *what, const struct voxel_tensor_info *list,
                          int32_t count)
{
    char name[PLAIN_BYTES], shape[PLAIN_BYTES];
    for (int32_t i = 0; i < count; i++) {
        const char *shown = plain_text(list[i].name, name);
        printf(
            "  %-7s %-*s %s\n", what, plain_pad(shown, 16), shown,
            plain_text(cli_shape(list[i].type_name, list[i].shape, list[i].rank), shape));
    }
}

/* "NAME version VERSION STATE: REASON" */
static void print_index(const struct voxel_model_index *model, const char *state)
{
    char name[PLAIN_BYTES], version[PLAIN_BYTES], shown[PLAIN_BYTES], reason[PLAIN_BYTES];
    printf("%s version %s %s%s%s\n", plain_text(model->name, name),
           *model->version ? plain_text(model->version, version) : "-",
           plain_text(state, shown), *model->reason ? ": " : "",
           plain_text(model->reason, reason));
}

/* What the server refuses beyond; the metadata do not have it. */
static enum voxel_code print_limits(struct voxel_client *client,
                                    const struct voxel_model_name *name,
                                    struct voxel_error *error)
{
    struct voxel_model_limits limits;
    const int32_t *shape = limits.spatial_shape;
    char bound[PLAIN_BYTES];
    enum voxel_code code = voxel_model_limits_get(client, name, &limits, error);
    if (!code && limits.voxels_max)
        printf("  %-7s %-16s %" PRId64 "%s%s%s\n", "limit", "voxels_max",
               limits.voxels_max, *limits.bound ? ", bounded by " : "",
               plain_text(limits.bound, bound),
               limits.voxels_max == VOXELS_MAX_DEFAULT ? " (its default)" : "");
    if (!code && shape[0])
        printf("  %-7s %-16s %" PRId32 "x%" PRId32 "x%" PRId32 "\n", "limit",
               "spatial_shape", shape[0], shape[1], shape[2]);
    if (!code && *limits.axes)
        printf("  %-7s %-16s columns 1 to 3 of the coordinates\n", "axes", limits.axes);
    return code;
}

static int print_model(const char *server, struct voxel_client *client,
                       const struct voxel_model_index *model)
{
    struct voxel_error error;
    struct voxel_model_info *info;
    struct voxel_model_name name = {.name = model->name};
    for (const char *c = model->version; *c >= '0' && *c <= '9'; c++)
        if (name.version < INT64_MAX / 10 - 9)
            name.version = name.version * 10 + (*c - '0');
    print_index(model, model->state);
    if (strcmp(model->state, "READY") != 0) return CLI_DONE;
    if (voxel_model_info_get(client, &name, &info, &error))
        return cli_say_error("models", server, &error);
    print_tensors("input", info->inputs, info->inputs_count);
    print_tensors("output", info->outputs, info->outputs_count);
    voxel_info_free(info);
    if (print_limits(client, &name, &error))
        return cli_say_error("models", server, &error);
    return CLI_DONE;
}

int command_models(int argc, char **argv)
{
    struct ask ask = {.server = CLI_SERVER};
    const struct option options[] = {
#include "clients/cli/models.def"
    };
    const struct command command = {
        .name = "models",
        .synopsis = "[--server ADDRESS]",
        .about = "Lists the models of a server with their inputs, outputs and limits.",
        .options = options,
        .options_count = sizeof options / sizeof *options};
    int code;
    struct voxel_client *client;
    struct voxel_models *models;
    struct voxel_error error;
    if (!options_parse(&command, argc, argv, &code)) return code;
    code = open_client("models", &ask, &client);
    if (code) return code;
    if (voxel_models_get(client, &models, &error)) {
        code = cli_say_error("models", ask.server, &error);
    } else {
        if (models->models_count == 0) printf("the server has no models\n");
        for (int32_t i = 0; i < models->models_count && !code; i++)
            code = print_model(ask.server, client, &models->models[i]);
        voxel_info_free(models);
    }
    voxel_client_close(client);
    return code;
}

/* Asks until the server is ready or `wait_s` have passed; until then an error counts as
 * not ready. */
static enum voxel_code ask_ready(struct voxel_client *client, double wait_s, bool *ready,
                                 struct voxel_error *error)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        struct timespec now;
        enum voxel_code code = voxel_server_ready(client, ready, error);
        clock_gettime(CLOCK_MONOTONIC, &now);
        double passed = (double)(now.tv_sec - begin.tv_sec) +
                        (double)(now.tv_nsec - begin.tv_nsec) * 1e-9;
        if ((!code && *ready) || passed >= wait_s) return code;
        cli_progress("waiting for the server to be ready");
        const struct timespec look = {.tv_nsec = LOOK_NS};
        nanosleep(&look, NULL);
    }
}

static double mean_ms(const struct voxel_duration *duration)
{
    return duration->count ? (double)duration->ns / (double)duration->count / 1e6 : 0.0;
}

static void print_statistics(const struct voxel_statistics *statistics)
{
    if (statistics->models_count == 0) return;
    printf("%-20s %7s %10s %7s %10s %11s %11s\n", "model", "version", "inferences",
           "failed", "queue ms", "compute ms", "whole ms");
    for (int32_t i = 0; i < statistics->models_count; i++) {
        const struct voxel_model_statistics *m = &statistics->models[i];
        char name[PLAIN_BYTES], version[PLAIN_BYTES];
        const char *shown = plain_text(m->name, name);
        printf("%-*s %7s %10" PRIu64 " %7" PRIu64 " %10.3f %11.3f %11.3f\n",
               plain_pad(shown, 20), shown, plain_text(m->version, version),
               m->inference_count, m->fail.count, mean_ms(&m->queue),
               mean_ms(&m->compute_infer), mean_ms(&m->success));
    }
}

/* Whether a model serves; *state: "is not ready: LOADING".  Of a model whose workers are gone the
 * server keeps READY, and only the reason tells. */
#define STATE_BYTES 64
static bool model_is_up(const struct voxel_model_index *model, char state[STATE_BYTES])
{
    static const char waiting[] = "waiting for a worker";
    bool waits = !strncmp(model->reason, waiting, sizeof waiting - 1);
    bool ready = !strcmp(model->state, "READY");
    snprintf(state, STATE_BYTES, "is %s%.40s",
             !ready  ? "not ready: "
             : waits ? "not ready"
                     : "ready",
             ready ? "" : model->state);
    return ready && !waits;
}

/* A model that nobody asked for: of the repository, and not loaded. */
static bool is_unasked(const struct voxel_model_index *model)
{
    return !strncmp(model->reason, "unloaded", strlen("unloaded"));
}

/* How many models that were asked for do not serve. */
static int32_t count_missed(const struct voxel_models *models)
{
    int32_t missed = 0;
    for (int32_t i = 0; i < models->models_count; i++) {
        char state[STATE_BYTES];
        missed +=
            !model_is_up(&models->models[i], state) && !is_unasked(&models->models[i]);
    }
    return missed;
}

/* Prints each model that is not ready, with the reason, and each ready model that has a
 * remark, such as changed files that were refused.  Leaves out models that nobody asked
 * for.  True if one that is not ready had a reason. */
static bool print_missed(const struct voxel_models *models)
{
    bool told = false;
    if (!models->models_count) printf("the server has no models\n");
    for (int32_t i = 0; i < models->models_count; i++) {
        const struct voxel_model_index *model = &models->models[i];
        char state[STATE_BYTES];
        bool up = model_is_up(model, state);
        if ((up && !*model->reason) || is_unasked(model)) continue;
        print_index(model, state);
        told |= !up && *model->reason;
    }
    return told;
}

/* The server, whether it is ready, and which of its models are not.  A server is ready also
 * without a model that came later, or that it lost: the first line says so, so that the
 * lines below do not seem to contradict it.  `models` may be NULL. */
static void print_server(const char *server, const struct voxel_server_info *info,
                         bool ready, const struct voxel_models *models)
{
    char name[PLAIN_BYTES], version[PLAIN_BYTES];
    const int32_t missed = models ? count_missed(models) : 0;
    printf("%s: %s %s, %s", server, plain_text(info->name, name),
           plain_text(info->version, version), ready ? "ready" : "not ready");
    if (ready && missed)
        printf(", but %" PRId32 " of its models %s not", missed,
               missed == 1 ? "is" : "are");
    printf("\n");
    bool told = models && print_missed(models);
    /* Over gRPC readiness is a bool, which cannot tell what a device lacks. */
    if (!ready && !told && !strcmp(info->name, "voxeld"))
        printf("its log and its HTTP page /v2/health/ready tell why\n");
}

static int print_status(const char *server, struct voxel_client *client, double wait_s)
{
    struct voxel_error error;
    struct voxel_server_info *info;
    struct voxel_models *models = NULL;
    struct voxel_statistics *statistics;
    bool ready;
    if (ask_ready(client, wait_s, &ready, &error))
        return cli_say_error("status", server, &error);
    cli_progress(NULL);
    if (voxel_server_info_get(client, &info, &error))
        return cli_say_error("status", server, &error);
    enum voxel_code code = voxel_models_get(client, &models, &error);
    print_server(server, info, ready, code ? NULL : models);
    voxel_info_free(info);
    if (!code) voxel_info_free(models);
    if (code && code != VOXEL_UNIMPLEMENTED)
        return cli_say_error("status", server, &error);
    const struct voxel_model_name every = {.name = ""};
    code = voxel_statistics_get(client, &every, &statistics, &error);
    if (code && code != VOXEL_UNIMPLEMENTED)
        return cli_say_error("status", server, &error);
    if (!code) print_statistics(statistics);
    if (!code) voxel_info_free(statistics);
    return ready ? CLI_DONE : CLI_REFUSED;
}

int command_status(int argc, char **argv)
{
    struct ask ask = {.server = CLI_SERVER};
    const struct option options[] = {
#include "clients/cli/status.def"
    };
    const struct command command = {
        .name = "status",
        .synopsis = "[--server ADDRESS] [--wait SECONDS]",
        .about = "Shows whether a server is ready, which of its models are not and why, "
                 "and what they have done so far.",
        .after = "exit code: 0 ready, 1 not ready or away, 2 wrong options",
        .options = options,
        .options_count = sizeof options / sizeof *options};
    int code;
    struct voxel_client *client;
    if (!options_parse(&command, argc, argv, &code)) return code;
    code = open_client("status", &ask, &client);
    if (code) return code;
    code = print_status(ask.server, client, ask.wait_s);
    voxel_client_close(client);
    return code;
}
