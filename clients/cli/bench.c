/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/commands.h"

#include "clients/c/error.h"
#include "clients/c/limits.h"
#include "clients/cli/axes.h"
#include "clients/cli/load.h"
#include "clients/cli/plain.h"
#include "clients/cli/shm.h"
#include "clients/cli/token.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SECONDS_DEFAULT 5.0
#define VOXELS_DEFAULT  10000
/* Without --warmup: these requests, and no further one after this time. */
#define WARMUP_MAX     20
#define WARMUP_SECONDS 1.0
/* Sets of places for the outputs of requests under way.  More requests share the sets:
 * the outputs overwrite each other, which is harmless since nothing reads them. */
#define SHM_SETS_MAX  16
#define SHM_SETS_OPEN 4

struct bench_options {
    struct cli_tls tls;
    const char *server, *model, *file, *dtype, *token_file;
    int64_t version, voxels, channels, concurrency, requests, warmup, seed;
    double rate, duration_s, timeout_ms, voxel;
    bool json, shm, one_sample, no_geometry_header;
};

/* The server's own statistics of the version asked, or summed over all. */
struct server_side {
    bool known; /* it answered */
    uint64_t count;
    uint64_t queue_ns;
    uint64_t compute_ns;
};

/* One request, sent again and again. */
struct bench {
    struct voxel_client *client;
    struct voxel_request request;
    struct shm_request shm;
    int64_t turn;
    size_t sent_bytes; /* of the last answer */
    size_t received_bytes;
    struct server_side before; /* what is measured */
};

static const char examples[] =
    "Without FILE, bench sends a hollow sphere of --voxels voxels, or several that fit\n"
    "into the model's spatial_shape. A closed loop keeps\n"
    "-c requests under way. With --rate (open loop) bench sends at random times\n"
    "(Poisson), whatever the server does, and counts each latency from the time when\n"
    "the request should have been sent. The means measured by the server are of all\n"
    "requests that it answered meanwhile: those of other clients count, too, and "
    "without\n"
    "--version those of every version.\n\n"
    "examples:\n"
    "  voxel bench --model normals -c 4 --duration 10\n"
    "  voxel bench --model normals scan.ply --rate 20 --duration 30 --json\n\n"
    "Ctrl-C ends the measurement, and what was measured is printed.\n\n"
    "exit code: 0 all answered, 1 some failed, 2 wrong options or file";

static void on_answer(void *context, struct voxel_answer *answer,
                      const struct voxel_error *error)
{
    struct load_ticket *ticket = context;
    voxel_answer_free(answer);
    load_finish(ticket, error);
}

static enum voxel_code submit(void *context, struct load_ticket *ticket,
                              struct voxel_error *error)
{
    struct bench *bench = context;
    if (bench->shm.region)
        bench->request.places = shm_request_places(&bench->shm, bench->turn++);
    return voxel_infer_async(bench->client, &bench->request, on_answer, ticket, error);
}

/* How many voxels the made-up cloud has: those asked for, or what the model takes of the
 * default. */
static int64_t count_voxels(const struct bench_options *o,
                            const struct voxel_model_limits *limits)
{
    const int32_t *shape = limits->spatial_shape;
    int64_t count = VOXELS_DEFAULT;
    if (o->voxels >= 0) return o->voxels;
    if (limits->voxels_max && limits->voxels_max < count) count = limits->voxels_max;
    const double room = (double)shape[0] * shape[1] * shape[2];
    if (shape[0] && room < (double)count) count = (int64_t)room;
    return count;
}

/* `limits` may be NULL with a FILE. */
static int make_cloud(const struct bench_options *o,
                      const struct voxel_model_limits *limits, struct cloud *cloud)
{
    struct voxel_error error;
    struct points points;
    enum voxel_code code;
    /* Nothing reads the answers, so the scale of feats does not matter. */
    const struct feats_asked asked = {.raw = true, .one_sample = o->one_sample};
    if (o->file) {
        code = points_read_file(o->file, &asked, &points, &error);
        if (!code) code = cloud_make(&points, o->voxel, cloud, &error);
        if (!code) cli_say_cloud("bench", o->file, cloud, false);
        if (!code && cloud->count == 0)
            code = voxel_error_set(&error, VOXEL_INVALID_ARGUMENT,
                                   "%s: expected a voxel at least, got none", o->file);
        if (code) cloud_fini(cloud);
        points_fini(&points);
    } else {
        code = cloud_make_shell(count_voxels(o, limits), limits->spatial_shape, cloud,
                                &error);
    }
    return code ? cli_say_input("bench", &error) : CLI_DONE;
}

static struct server_side server_side_read(const struct bench *bench)
{
    struct server_side side = {0};
    struct voxel_statistics *statistics;
    const struct voxel_model_name name = {bench->request.model, bench->request.version};
    if (voxel_statistics_get(bench->client, &name, &statistics, NULL)) return side;
    side.known = true;
    for (int32_t i = 0; i < statistics->models_count; i++) {
        const struct voxel_model_statistics *m = &statistics->models[i];
        side.count += m->success.count;
        side.queue_ns += m->queue.ns;
        side.compute_ns +=
            m->compute_input.ns + m->compute_infer.ns + m->compute_output.ns;
    }
    voxel_info_free(statistics);
    return side;
}

/* What was counted between the two: not known if one is not, or if the server was started
 * again meanwhile. */
static struct server_side server_side_between(const struct server_side *before,
                                              const struct server_side *after)
{
    struct server_side side = {0};
    if (!before->known || !after->known || after->count < before->count) return side;
    side = (struct server_side){true, after->count - before->count,
                                after->queue_ns - before->queue_ns,
                                after->compute_ns - before->compute_ns};
    return side;
}

static void on_signal(int number)
{
    (void)number;
    load_interrupt();
}

/* The first Ctrl-C ends what is measured, so that it is printed; the second ends bench. */
static void on_warm(void *context)
{
    struct bench *bench = context;
    const struct sigaction action = {.sa_handler = on_signal,
                                     .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bench->before = server_side_read(bench);
    cli_progress("measuring");
}

/* Members of the JSON: null if they are not known. */
static void print_side_json(const struct server_side *side)
{
    const double count = side->count ? (double)side->count : 1.0;
    if (side->known)
        printf(",\"server_count\":%" PRIu64 ",\"server_queue_us\":%.2f,"
               "\"server_compute_us\":%.2f",
               side->count, (double)side->queue_ns / count / 1e3,
               (double)side->compute_ns / count / 1e3);
    else
        printf(",\"server_count\":null,\"server_queue_us\":null,"
               "\"server_compute_us\":null");
}

static void print_side(const struct server_side *side)
{
    const double count = (double)side->count;
    if (!side->known)
        printf("means measured by the server: not known, since it did not answer, or was "
               "started again\n");
    else if (side->count)
        printf("means measured by the server: queue %.3f ms, compute %.3f ms\n",
               (double)side->queue_ns / count / 1e6,
               (double)side->compute_ns / count / 1e6);
}

static void print_result(const struct bench_options *o, const struct bench *bench,
                         const struct load_result *result, const struct server_side *side)
{
    double per_s = (double)result->answered / result->seconds;
    double voxels = (double)bench->request.inputs[0].shape[0];
    if (o->json) {
        printf("{\"model\":");
        plain_print_json(o->model);
        printf(",\"loop\":\"%s\",\"concurrency\":%" PRId64
               ",\"rate\":%g,\"voxels\":%.0f,\"channels\":%" PRId64 ",",
               o->rate > 0 ? "open" : "closed", o->concurrency, o->rate, voxels,
               bench->request.inputs[1].shape[1]);
        load_print_json(result, stdout);
        printf(",\"sent_bytes\":%zu,\"received_bytes\":%zu,\"voxels_per_s\":%.0f",
               bench->sent_bytes, bench->received_bytes, per_s * voxels);
        print_side_json(side);
        printf("}\n");
        return;
    }
    printf("%s: %.0f voxels, %" PRId64 " channels; %s sent and %s received per request\n",
           o->model, voxels, bench->request.inputs[1].shape[1],
           cli_bytes(bench->sent_bytes), cli_bytes(bench->received_bytes));
    if (o->rate > 0)
        printf("open loop, %g requests/s asked for\n", o->rate);
    else
        printf("closed loop, %" PRId64 " under way\n", o->concurrency);
    load_print(result, stdout);
    printf("%.3g voxels/s, %.1f MB/s sent, %.1f MB/s received\n", per_s * voxels,
           per_s * (double)bench->sent_bytes / 1e6,
           per_s * (double)bench->received_bytes / 1e6);
    print_side(side);
}

static int measure(const struct bench_options *o, struct bench *bench)
{
    struct voxel_error error;
    struct voxel_answer *answer;
    uint64_t sent = cli_request_bytes(&bench->request);
    cli_progress("warming up");
    /* One request alone gives a clear error if it fails, and the size of all answers. */
    if (voxel_infer(bench->client, &bench->request, &answer, &error))
        return cli_say_refused("bench", o->server, sent, &error);
    bench->sent_bytes = answer->sent_bytes;
    bench->received_bytes = answer->received_bytes;
    voxel_answer_free(answer);

    const struct load_plan plan = {.concurrency = o->concurrency,
                                   .rate = o->rate,
                                   .duration_s = o->duration_s,
                                   .requests = o->requests,
                                   .warmup = o->warmup < 0 ? WARMUP_MAX : o->warmup,
                                   .warmup_s = o->warmup < 0 ? WARMUP_SECONDS : 0,
                                   .seed = (uint64_t)o->seed};
    const struct load_target target = {bench->client, bench, on_warm, submit};
    struct load_result result;
    if (load_run(&plan, &target, &result, &error))
        return cli_say_refused("bench", o->server, sent, &error);
    cli_progress(NULL);
    if (load_interrupted())
        fprintf(stderr,
                "voxel bench: interrupted after %.3g s: what was measured until "
                "then\n",
                result.seconds);
    struct server_side after = server_side_read(bench);
    const struct server_side side = server_side_between(&bench->before, &after);
    print_result(o, bench, &result, &side);
    int code = load_errors(&result) + result.not_sent ? CLI_REFUSED : CLI_DONE;
    load_result_fini(&result);
    return code;
}

/* Makes the request; with --shm moves its tensors into a region. */
static enum voxel_code make_request(const struct bench_options *o, struct bench *bench,
                                    const struct shm_plan *plan,
                                    struct voxel_error *error)
{
    bench->request = (struct voxel_request){.model = o->model,
                                            .version = o->version,
                                            .inputs = plan->tensors->list,
                                            .inputs_count = 2};
    if (!o->shm) return VOXEL_OK;
    enum voxel_code code = shm_request_open(bench->client, plan, &bench->shm, error);
    bench->request.places = bench->shm.places;
    bench->request.places_count = bench->shm.outputs_count;
    return code;
}

static int run_model(const struct bench_options *o, struct bench *bench,
                     const struct voxel_model_info *info, const struct cloud *cloud)
{
    struct model_inputs inputs;
    struct request_tensors tensors;
    struct voxel_error error;
    int32_t channels = cloud->channels ? cloud->channels : (int32_t)o->channels;
    if (model_inputs_find(info, o->dtype, channels, &inputs, &error) ||
        request_tensors_make(cloud, &inputs, &tensors, &error))
        return cli_say_input("bench", &error);
    int64_t sets = o->rate > 0 ? SHM_SETS_OPEN : o->concurrency;
    const struct shm_plan plan = {.info = info,
                                  .tensors = &tensors,
                                  .sets = sets < SHM_SETS_MAX ? sets : SHM_SETS_MAX};
    int code = make_request(o, bench, &plan, &error)
                   ? cli_say_error("bench", o->server, &error)
                   : measure(o, bench);
    shm_request_close(&bench->shm);
    request_tensors_fini(&tensors);
    return code;
}

static int run_bench(const struct bench_options *o, struct cloud *cloud)
{
    struct bench bench = {0};
    struct voxel_model_limits limits;
    struct voxel_error error;
    struct voxel_model_info *info;
    struct voxel_options options = {.threads = o->rate > 0 ? 1 : 0,
                                    .deadline_us = (int64_t)(o->timeout_ms * 1e3),
                                    .no_geometry_header = o->no_geometry_header,
                                    .tls = cli_tls_of(&o->tls)};
    int bad = cli_token_get("bench", o->token_file, o->server, &options);
    if (bad) return bad;
    if (voxel_client_open(o->server, &options, &bench.client, &error))
        return cli_say_input("bench", &error);
    const struct voxel_model_name name = {o->model, o->version};
    int code;
    if (voxel_model_info_get(bench.client, &name, &info, &error)) {
        code = cli_say_error("bench", o->server, &error);
    } else if (voxel_model_limits_get(bench.client, &name, &limits, &error)) {
        code = cli_say_error("bench", o->server, &error);
        voxel_info_free(info);
    } else {
        if (o->file && *limits.axes) cloud_place(cloud, limits.axes);
        code = o->file ? CLI_DONE : make_cloud(o, &limits, cloud);
        if (!code) code = run_model(o, &bench, info, cloud);
        voxel_info_free(info);
    }
    voxel_client_close(bench.client);
    return code;
}

static int check_idle(const struct command *command, const struct bench_options *o)
{
    const struct option_idle idle[] = {
        {"voxels", o->file, "the voxels of FILE are sent"},
        {"voxel", !o->file, "it applies only to points of FILE"},
        {"one-sample", !o->file, "it applies only to points of FILE"},
        {"concurrency", o->rate > 0,
         "with --rate requests are sent no matter how many are under way"},
        {"seed", o->rate <= 0, "it applies only to --rate"},
    };
    return options_refuse_idle(command, idle, sizeof idle / sizeof *idle);
}

int command_bench(int argc, char **argv)
{
    struct bench_options o = {.server = CLI_SERVER,
                              .voxels = -1,
                              .concurrency = 1,
                              .warmup = -1,
                              .seed = 1,
                              .timeout_ms = 60000};
    uint64_t given = 0;
    const struct option options[] = {
#define VX_OPTION(name_, letter_, value_, kind_, member_, low_, high_, help_)            \
    {name_, letter_, value_, OPTION_##kind_, &o.member_, {low_, high_}, help_},
#include "clients/cli/bench.def"
#undef VX_OPTION
    };
    const struct command command = {
        .name = "bench",
        .synopsis = "--model NAME [FILE] [-c N | --rate R]",
        .about = "Measures throughput and latency of one model.",
        .after = examples,
        .options = options,
        .options_count = sizeof options / sizeof *options,
        .given = &given,
        .positional = &o.file,
    };
    int code;
    if (!options_parse(&command, argc, argv, &code)) return code;
    if (!o.model) {
        fprintf(stderr, "voxel bench: --model NAME is required; `voxel models` lists the "
                        "models\n");
        return CLI_USAGE;
    }
    if (check_idle(&command, &o)) return CLI_USAGE;
    if (o.duration_s <= 0 && o.requests == 0) o.duration_s = SECONDS_DEFAULT;
    /* Each answer of some megabytes is freed and allocated anew.  Without this, glibc
     * returns the memory to the kernel each time, and bench measures page faults. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    /* A wrong file is said before anything is asked. */
    struct cloud cloud = {0};
    code = o.file ? make_cloud(&o, NULL, &cloud) : CLI_DONE;
    if (code) return code;
    code = run_bench(&o, &cloud);
    cloud_fini(&cloud);
    return code;
}
