/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define THREADS_MAX 32
/* Pieces per thread: several, since rows differ much in cost. */
#define PIECES 8

struct crew {
    void *context;
    void (*work)(void *context, int64_t begin, int64_t end);
    int64_t count;
    int64_t step;
    _Atomic int64_t next;
};

static void *crew_main(void *argument)
{
    struct crew *crew = argument;
    for (;;) {
        int64_t begin = atomic_fetch_add(&crew->next, crew->step);
        if (begin >= crew->count) return NULL;
        int64_t end = begin + crew->step;
        crew->work(crew->context, begin, end < crew->count ? end : crew->count);
    }
}

void parallel_run(int64_t count, void *context,
                  void (*work)(void *context, int64_t begin, int64_t end))
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) cores = 1;
    if (cores > THREADS_MAX) cores = THREADS_MAX;
    int64_t step = count / (cores * PIECES) + 1;
    struct crew crew = {.context = context, .work = work, .count = count, .step = step};
    pthread_t threads[THREADS_MAX];
    long started = 0;
    /* This thread works too; if no other can be started, it does all of the work. */
    while (started < cores - 1 &&
           pthread_create(&threads[started], NULL, crew_main, &crew) == 0)
        started++;
    crew_main(&crew);
    for (long i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
