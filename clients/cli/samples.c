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

/* True for the word alone or with an end that makes it a number; sample_weight is none. */
static bool is_numbered(const char *plain, const char *word)
{
    static const char *const ends[] = {"",     "s",    "es",      "id",    "ids", "idx",
                                       "idxs", "inds", "indices", "index", "no",  NULL};
    size_t length = strlen(word);
    return strncmp(plain, word, length) == 0 && is_one_of(plain + length, ends);
}

static bool means_sample(const char *plain)
{
    return means_batch(plain) || is_numbered(plain, "sample");
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
    static const char *const words[] = {"offset", "ptr", "scene", "frame", "scan"};
    char plain[SAMPLES_NAME_BYTES];
    if (bytes >= SAMPLES_NAME_BYTES) return false;
    plain_name(name, bytes, plain);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_numbered(plain, words[i])) return true;
    return means_sample(plain);
}

#define LAST_MAX 32 /* values of the last column, if it is the sample */
/* Values of column 0 that are more samples than requests have; enough of them where the
 * last column lies in blocks, and column 0 does not. */
#define FIRST_MANY 32
#define FIRST_SOME 8

static int32_t count_of(const bool *seen, int32_t most)
{
    int32_t count = 0;
    for (int32_t i = 0; i < most; i++) count += seen[i];
    return count;
}

bool samples_are_last(const int32_t *coords, int64_t rows, struct samples_columns *found)
{
    bool first[SAMPLE_MAX + 1] = {false}, last[LAST_MAX] = {false};
    bool ascends = true;
    int64_t turns = 0; /* how often column 0 changes from a row to the next */
    int32_t largest = 0;
    for (const int32_t *row = coords; row < coords + 4 * rows; row += 4) {
        if (row[0] < 0 || row[0] > SAMPLE_MAX || row[3] < 0 || row[3] >= LAST_MAX)
            return false;
        first[row[0]] = last[row[3]] = true;
        if (row[3] > largest) largest = row[3];
        if (row == coords) continue;
        turns += row[0] != row[-4];
        ascends = ascends && row[3] >= row[-1];
    }
    found->first = count_of(first, SAMPLE_MAX + 1);
    found->last = count_of(last, LAST_MAX);
    if (found->last != largest + 1 || found->first <= 2 * found->last) return false;
    const bool blocks = turns == found->first - 1;
    if (blocks && !ascends) return false; /* samples first, each with its own heights */
    const bool strong = ascends && !blocks && found->last > 1;
    return found->first > (strong ? FIRST_SOME : FIRST_MANY);
}
