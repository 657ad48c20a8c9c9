/* workers_child - what a test of workers runs as its worker: it speaks the channel's language,
 * badly where the test wants it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_WORKERS_CHILD_H
#define VX_TESTS_WORKERS_CHILD_H

/* The exit code. */
int workers_child(const char *manner);

#endif
