/* workers_child - what a test of workers runs as its worker: it speaks the IPC channel's
 * protocol, and breaks it where the test wants.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_WORKERS_CHILD_H
#define VX_TESTS_WORKERS_CHILD_H

/* The exit code. */
int workers_child(const char *manner);

#endif
