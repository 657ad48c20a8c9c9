/* no_threads - holds a test to what tests/unit/threads.txt says of it: it starts no thread.
 *
 * TSan looks for races, so it runs the tests in that list and no others.  Here a function takes
 * the place of pthread_create for a program that is not in the list, and for the libraries that
 * it links.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>
#include <stdlib.h>

int vx_no_thread(void) __asm__("pthread_create");

int vx_no_thread(void)
{
    fprintf(stderr,
            "this test starts a thread: expected its name in tests/unit/threads.txt, "
            "so that TSan runs it\n");
    abort();
}
