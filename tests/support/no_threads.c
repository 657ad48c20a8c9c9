/* no_threads - holds a test to what tests/unit/threads.txt says of it: it starts no thread.
 *
 * TSan looks for races, so it runs the tests in that list and no others.  Here pthread_create
 * takes the place of libc's for a program that is not in the list, and for the libraries that
 * it links.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                   void *(*body)(void *), void *context)
{
    (void)thread, (void)attributes, (void)body, (void)context;
    fprintf(stderr,
            "this test starts a thread: expected its name in tests/unit/threads.txt, "
            "so that TSan runs it\n");
    abort();
}
