/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/samples.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

bool samples_take(double value, int32_t *sample)
{
    if (!(value >= 0 && value <= SAMPLE_MAX) || value != floor(value)) return false;
    *sample = (int32_t)value;
    return true;
}

/* The name in lower case, letters and digits only, without CloudCompare's prefix of
 * scalar fields. */
static void plain_name(const char *name, size_t bytes, char plain[SAMPLES_NAME_BYTES])
{
    static const char prefix[] = "scalar_";
    size_t skip = sizeof prefix - 1;
    size_t used = 0;
    if (bytes <= skip || memcmp(name, prefix, skip) != 0) skip = 0;
    for (size_t i = skip; i < bytes; i++)
        if (isalnum((unsigned char)name[i]))
            plain[used++] = (char)tolower((unsigned char)name[i]);
    plain[used] = '\0';
}

/* True for every name that begins so, such as batch_inds and bidxs. */
static bool means_batch(const char *plain)
{
    return strncmp(plain, "batch", 5) == 0 || strncmp(plain, "bidx", 4) == 0;
}

static bool is_one_of(const char *plain, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(plain, *words) == 0) return true;
    return false;
}

/* True for batches, and for `sample` alone or with these ends; sample_weight is none. */
static bool means_sample(const char *plain)
{
    static const char *const ends[] = {"",     "s",    "es",      "id",    "ids", "idx",
                                       "idxs", "inds", "indices", "index", "no",  NULL};
    if (means_batch(plain)) return true;
    return strncmp(plain, "sample", 6) == 0 && is_one_of(plain + 6, ends);
}

static void keep_first(char kept[SAMPLES_NAME_BYTES], const char *name, size_t bytes)
{
    if (*kept) return;
    memcpy(kept, name, bytes);
    kept[bytes] = '\0';
}

void samples_see(struct samples_names *names, const char *name, size_t bytes)
{
    char plain[SAMPLES_NAME_BYTES];
    if (bytes >= SAMPLES_NAME_BYTES) return;
    plain_name(name, bytes, plain);
    if (means_sample(plain)) keep_first(names->name, name, bytes);
    if (strcmp(plain, "b") == 0) keep_first(names->letter, name, bytes);
    if (strcmp(plain, "g") == 0 || strcmp(plain, "a") == 0) names->colours = true;
}

const char *samples_misnamed(const struct samples_names *names)
{
    if (*names->name) return names->name;
    return *names->letter && !names->colours ? names->letter : NULL;
}

bool samples_split(const char *name, size_t bytes)
{
    static const char *const words[] = {"offset",  "offsets", "ptr",    "scene",
                                        "scenes",  "frame",   "frames", "sceneid",
                                        "frameid", NULL};
    char plain[SAMPLES_NAME_BYTES];
    if (bytes >= SAMPLES_NAME_BYTES) return false;
    plain_name(name, bytes, plain);
    return means_sample(plain) || is_one_of(plain, words);
}
