/* marks - notes where a test is, for the report of a crash, without a write per assertion.
 *
 * libcheck calls _mark_point in every assertion that holds, and each call writes to a file.  A
 * test that looks at every number of an answer wrote a million times: half of its time.  The
 * linker's --wrap sends those calls here; a place that was among the last noted ones is not
 * noted again, so that a loop notes its places once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

/* Assertions of one loop, at most about. */
#define PLACES 16

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

static _Thread_local struct {
    const char *file;
    int line;
} places[PLACES];
static _Thread_local unsigned next;

void __wrap__mark_point(const char *file, int line)
{
    for (size_t i = 0; i < PLACES; i++)
        if (places[i].file == file && places[i].line == line) return;
    places[next].file = file;
    places[next].line = line;
    next = (next + 1) % PLACES;
    __real__mark_point(file, line);
}
