/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/summary.h"

#include "clients/cli/commands.h"
#include "clients/cli/convert.h"
#include "clients/cli/plain.h"
#include "clients/cli/samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Channels that the summary shows. */
#define CHANNELS_SHOWN 16
#define LAYERS         "layers" /* the parameter, with a text of its own */

static void print_channels(const struct voxel_tensor *output)
{
    int64_t channels = 1;
    for (int32_t i = 1; i < output->rank; i++) channels *= output->shape[i];
    int64_t rows = output->rank > 0 ? output->shape[0] : 1;
    if (rows == 0 || channels == 0) return;
    printf("  %7s %11s %11s %11s\n", "channel", "min", "mean", "max");
    for (int64_t c = 0; c < channels && c < CHANNELS_SHOWN; c++) {
        double low = INFINITY;
        double high = -INFINITY;
        double sum = 0;
        int64_t numbers = 0; /* how many are not NaN */
        for (int64_t row = 0; row < rows; row++) {
            double v = (double)convert_cell(output, row * channels + c);
            if (isnan(v)) continue;
            low = v < low ? v : low;
            high = v > high ? v : high;
            sum += v;
            numbers++;
        }
        double mean = numbers ? sum / (double)numbers : NAN;
        if (numbers == 0) low = high = NAN;
        printf("  %7" PRId64 " %11.4f %11.4f %11.4f", c, low, mean, high);
        if (numbers < rows) printf("  NaN in %" PRId64 " rows", rows - numbers);
        printf("\n");
    }
    if (channels > CHANNELS_SHOWN)
        printf("  ... and %" PRId64 " channels more\n", channels - CHANNELS_SHOWN);
}

/* Times are said as all others that the commands print, in ms: "queue_ns" as "queue". */
static bool is_time(const struct voxel_parameter *parameter)
{
    const char *unit = strrchr(parameter->name, '_');
    return unit && !strcmp(unit, "_ns") && parameter->kind == VOXEL_PARAMETER_INT64;
}

static void print_whole(const struct voxel_parameter *parameter)
{
    if (is_time(parameter))
        printf("%.3f ms", (double)parameter->int64 / 1e6);
    else
        printf("%" PRId64, parameter->int64);
}

static void print_parameters(const struct voxel_answer *answer)
{
    for (int32_t i = 0; i < answer->parameters_count; i++) {
        const struct voxel_parameter *p = &answer->parameters[i];
        if (strcmp(p->name, LAYERS) == 0) continue;
        char name[PLAIN_BYTES], text[PLAIN_BYTES];
        int shown = (int)strlen(p->name) - (is_time(p) ? 3 : 0);
        snprintf(name, sizeof name, "%.*s", shown, p->name);
        printf("%s%s ", i ? ", " : "server: ", plain_text(name, text));
        if (p->kind == VOXEL_PARAMETER_STRING)
            printf("%s", plain_text(p->text, text));
        else if (p->kind == VOXEL_PARAMETER_DOUBLE)
            printf("%g", p->number);
        else if (p->kind == VOXEL_PARAMETER_BOOL)
            printf("%s", p->int64 ? "yes" : "no");
        else if (p->kind == VOXEL_PARAMETER_UINT64)
            printf("%" PRIu64, p->uint64);
        else
            print_whole(p);
    }
    if (answer->parameters_count) printf("\n");
}

/* A line for each way in which layers were computed. */
static void print_layers(const struct voxel_answer *answer)
{
    const struct voxel_parameter *layers = voxel_answer_find_parameter(answer, LAYERS);
    if (!layers || layers->kind != VOXEL_PARAMETER_STRING) return;
    for (const char *at = layers->text; *at;) {
        const char *end = strstr(at, "; ");
        const int length = end ? (int)(end - at) : (int)strlen(at);
        char line[PLAIN_BYTES], text[PLAIN_BYTES];
        snprintf(line, sizeof line, "%.*s", length, at);
        printf("layers %s\n", plain_text(line, text));
        at += length + (end ? 2 : 0);
    }
}

void summary_warn_samples(const char *file, const struct cloud *cloud)
{
    const char *ending = strrchr(file, '.');
    bool named = ending && !strcmp(ending, ".ply"); /* its columns have names */
    struct samples_columns found;
    if (named || !samples_are_last(cloud->coords, cloud->count, &found)) return;
    char most[16] = "";
    if (found.last > 1) snprintf(most, sizeof most, " to %" PRId32, found.last - 1);
    fprintf(stderr,
            "voxel infer: warning: %s: column 0, the sample, takes %" PRId32
            " values, and the last column only 0%s: if the columns are x, y, z "
            "and the sample, put the sample first\n",
            file, found.first, most);
}

void summary_print(const char *file, const struct cloud *cloud,
                   const struct voxel_answer *answer)
{
    char size[CLOUD_SIZE_BYTES], name[PLAIN_BYTES], version[PLAIN_BYTES];
    int32_t samples = cloud_samples(cloud);
    printf("%s: %" PRId64 " voxels", file, cloud->count);
    if (cloud->sized) printf(" of %s", cloud_size_text(cloud, size));
    if (samples > 1)
        printf("%s of %" PRId32 " samples", cloud->sized ? "," : "", samples);
    printf("\nmodel %s version %s: %.1f ms round trip, %s sent, %s received\n",
           plain_text(answer->model, name), plain_text(answer->version, version),
           (double)answer->round_trip_ns / 1e6, cli_bytes(answer->sent_bytes),
           cli_bytes(answer->received_bytes));
    print_parameters(answer);
    print_layers(answer);
    for (int32_t i = 0; i < answer->outputs_count; i++) {
        const struct voxel_tensor *output = &answer->outputs[i];
        printf("output %s %s\n", plain_text(output->name, name),
               cli_shape(voxel_type_name(output->type), output->shape, output->rank));
        if (output->type != VOXEL_BYTES && output->rank <= 2) print_channels(output);
    }
}
