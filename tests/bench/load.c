/* load - sends many requests to voxeld, checks every answer, and reports how fast they came.
 *
 *   bench_load --server 127.0.0.1:8001 --model c64x8 --mix res:16 --channels-in 64 --clients 64
 *
 * See load.h for its parts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/bench/load.h"

#include "clients/cli/options.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

static const char after[] =
    "A mix is a list of requests with weights: res:16:3,res:128:1. res:R is all of a "
    "spherical\n"
    "shell of R^3 cells (16: 848 voxels, 128: 64160, 512: 1026536), shell:N any N voxels "
    "of one,\n"
    "echo:IN/OUT bytes for bench_echo. Each distinct request is first sent alone; from "
    "then on each\n"
    "answer to it must have the same bytes. With --rate the loop is open (Poisson) and a "
    "time counts\n"
    "from when a request should have been sent. --bad mixes in what must be refused or "
    "is given up:\n"
    "expired cancelled vanished giant empty duplicate range shape.\n\n"
    "exit code: 0 good, 1 a wrong answer or a status that is not right, 2 wrong options";

static bool options_check(const struct load_options *o)
{
    char names[LOAD_TEXT_BYTES];
    char *rest = NULL;
    const char *why = NULL;
    snprintf(names, sizeof names, "%s", o->allow);
    for (char *name = strtok_r(names, ",", &rest); name;
         name = strtok_r(NULL, ",", &rest))
        if (load_code_of(name) < 0)
            why = "--allow: expected names of statuses, as UNAVAILABLE";
    if (strcmp(o->dtype, "fp16") != 0 && strcmp(o->dtype, "fp32") != 0)
        why = "--dtype: expected fp16 or fp32";
    if (!strchr(o->server, ':')) why = "--server: expected host:port";
    if (o->seconds <= 0 && o->requests <= 0) why = "--seconds or --requests is needed";
    if (strncmp(o->mix, "echo:", 5) == 0 &&
        (o->bad > 0 || o->refs || strchr(o->mix, ',')))
        why = "--mix echo: is alone, without --bad and --refs";
    if (why) fprintf(stderr, "bench_load: %s\n", why);
    return !why;
}

static bool parse(struct load_options *o, int argc, char **argv, int *code)
{
    const struct option options[] = {
        {"server", 's', "HOST:PORT", OPTION_TEXT, &o->server, {0, 0}, "where it listens"},
        {"model", 'm', "NAME", OPTION_TEXT, &o->model, {0, 0}, "which model"},
        {"mix", 0, "LIST", OPTION_TEXT, &o->mix, {0, 0}, "what is sent, see below"},
        {"channels-in", 0, "C", OPTION_INT, &o->channels_in, {1, 4096}, "of feats"},
        {"dtype", 0, "TYPE", OPTION_TEXT, &o->dtype, {0, 0}, "of feats: fp16 or fp32"},
        {"geometries", 'g', "G", OPTION_INT, &o->geometries, {1, 1e5}, "different ones"},
        {"feats", 0, "F", OPTION_INT, &o->feats, {1, 1e5}, "variants for each geometry"},
        {"refs", 0, NULL, OPTION_FLAG, &o->refs, {0, 0}, "known coords go by name"},
        {"clients", 'c', "N", OPTION_INT, &o->clients, {1, 1e5}, "requests under way"},
        {"rate",
         'r',
         "R",
         OPTION_REAL,
         &o->rate,
         {0, 1e7},
         "requests per second instead"},
        {"in-flight", 0, "N", OPTION_INT, &o->in_flight, {1, 1e5}, "most, with --rate"},
        {"channels",
         0,
         "N",
         OPTION_INT,
         &o->channels,
         {1, 4096},
         "connections; 0 = clients"},
        {"threads", 0, "N", OPTION_INT, &o->threads, {1, LOAD_THREADS_MAX}, "for events"},
        {"seconds", 't', "S", OPTION_REAL, &o->seconds, {0, 1e6}, "how long is counted"},
        {"requests",
         'n',
         "N",
         OPTION_INT,
         &o->requests,
         {0, 1e12},
         "or how many are sent"},
        {"warmup", 0, "S", OPTION_REAL, &o->warmup, {0, 1e4}, "before, not counted"},
        {"deadline", 0, "MS", OPTION_INT, &o->deadline_ms, {1, 1e7}, "of good requests"},
        {"bad", 0, "SHARE", OPTION_REAL, &o->bad, {0, 0.9}, "of requests that are bad"},
        {"allow",
         0,
         "CODES",
         OPTION_TEXT,
         &o->allow,
         {0, 0},
         "good ones may have them too"},
        {"seed", 0, "N", OPTION_INT, &o->seed, {0, 1e15}, "of all that is drawn"},
        {"json", 'j', NULL, OPTION_FLAG, &o->json, {0, 0}, "a second line, of JSON"},
    };
    const struct command command = {.name = "load",
                                    .synopsis = "--mix LIST [options]   (bench_load)",
                                    .about = "Drives a voxeld and checks every answer.",
                                    .after = after,
                                    .options = options,
                                    .options_count = sizeof options / sizeof *options};
    return options_parse(&command, argc, argv, code);
}

int main(int argc, char **argv)
{
    struct load_options o = {.server = "127.0.0.1:8001",
                             .model = "c64x8",
                             .mix = "res:16",
                             .dtype = "fp16",
                             .allow = "",
                             .channels_in = 64,
                             .geometries = 8,
                             .feats = 1,
                             .clients = 1,
                             .threads = 1,
                             .in_flight = 4096,
                             .deadline_ms = 60000,
                             .warmup = 1,
                             .seed = 1};
    static struct load_work work;
    static struct load_stats stats;
    int code;
    double seconds = 0;
    if (!parse(&o, argc, argv, &code)) return code;
    if (!options_check(&o)) return CLI_USAGE;
    if (o.requests > 0 && o.warmup > 0 && o.seconds <= 0) o.warmup = 0;
    if (o.channels == 0) o.channels = o.rate > 0 ? 64 : o.clients < 64 ? o.clients : 64;
    if (o.threads > o.channels) o.threads = o.channels;
    /* Received bodies are many slices: without this glibc returns their pages each time. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    grpc_init();
    bool good = load_work_open(&work, &o);
    code = good ? CLI_REFUSED : CLI_USAGE;
    if (good && load_drive_run(&work, &stats, &seconds)) {
        load_stats_print(&stats, &o, seconds);
        code = load_stats_good(&stats) ? CLI_DONE : CLI_REFUSED;
    }
    grpc_shutdown();
    load_work_close(&work);
    return code;
}
