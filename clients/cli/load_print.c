/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/load.h"
#include "clients/cli/plain.h"

#include <inttypes.h>

static const struct {
    const char *name;
    const char *key;
    double part;
} columns[] = {{"p50", "p50_us", 0.5},
               {"p90", "p90_us", 0.9},
               {"p99", "p99_us", 0.99},
               {"p99.9", "p999_us", 0.999},
               {"max", "max_us", 1.0}};
#define COLUMNS (sizeof columns / sizeof *columns)

void load_print(const struct load_result *result, FILE *to)
{
    fprintf(to, "%" PRId64 " answered in %.2f s: %.1f requests/s\n", result->answered,
            result->seconds, (double)result->answered / result->seconds);
    fprintf(to, "latency ms %10s", "mean");
    for (size_t i = 0; i < COLUMNS; i++) fprintf(to, " %10s", columns[i].name);
    fprintf(to, "\n           %10.3f", load_mean(result) / 1e6);
    for (size_t i = 0; i < COLUMNS; i++)
        fprintf(to, " %10.3f", (double)load_percentile(result, columns[i].part) / 1e6);
    fprintf(to, "\n");
    for (int code = 1; code < LOAD_CODES; code++)
        if (result->errors[code])
            fprintf(to, "failed %-20s %" PRId64 "\n",
                    voxel_code_name((enum voxel_code)code), result->errors[code]);
    char text[PLAIN_BYTES];
    if (result->first_error.code)
        fprintf(to, "the first: %s: %s\n", voxel_code_name(result->first_error.code),
                plain_text(result->first_error.text, text));
    if (result->not_sent)
        fprintf(to, "not sent: %" PRId64 ", since %d requests were under way\n",
                result->not_sent, LOAD_IN_FLIGHT_MAX);
}

void load_print_json(const struct load_result *result, FILE *to)
{
    fprintf(to, "\"answered\":%" PRId64 ",\"seconds\":%.6f,\"requests_per_s\":%.3f",
            result->answered, result->seconds,
            (double)result->answered / result->seconds);
    fprintf(to, ",\"mean_us\":%.2f", load_mean(result) / 1e3);
    for (size_t i = 0; i < COLUMNS; i++)
        fprintf(to, ",\"%s\":%.2f", columns[i].key,
                (double)load_percentile(result, columns[i].part) / 1e3);
    fprintf(to, ",\"not_sent\":%" PRId64 ",\"failed\":%" PRId64 ",\"errors\":{",
            result->not_sent, load_errors(result));
    const char *comma = "";
    for (int code = 1; code < LOAD_CODES; code++) {
        if (!result->errors[code]) continue;
        fprintf(to, "%s\"%s\":%" PRId64, comma, voxel_code_name((enum voxel_code)code),
                result->errors[code]);
        comma = ",";
    }
    fprintf(to, "}");
}
