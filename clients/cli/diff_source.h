/* diff_source - one side of a comparison: a recording, or a model that is recorded now.
 *
 *   A.npz                     a recording
 *   DIR[/VERSION][@DEVICE]    a model directory, run by `voxeld record` on that device
 *   DIR@cuda:0,fp32           in that precision
 *
 *   struct diff_source source;
 *   if (diff_source_parse("model@cuda:0", &source, &error)) ...
 *   if (diff_source_record(&source, &wanted, &error)) ...      of a model
 *   ...source.recording...
 *   diff_source_close(&source);
 *
 * Owner    the caller; the text is borrowed.
 * Thread   main: it starts a process and waits for it.
 * Limits   paths of PATH_MAX bytes.
 * Fails    INVALID_ARGUMENT for a text that is neither; as recording.h; UNAVAILABLE if
 *          voxeld cannot be started, or cannot record (its sentence is on stderr).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_DIFF_SOURCE_H
#define VOXEL_CLIENTS_CLI_DIFF_SOURCE_H

#include "clients/cli/recording.h"

#include <limits.h>

#define DIFF_WORD_BYTES 64

struct diff_source {
    const char *text; /* as given */
    char path[PATH_MAX];
    char device[DIFF_WORD_BYTES], precision[DIFF_WORD_BYTES]; /* "" = not given */
    bool model;
    struct recording recording;
};

/* Tells which of the two it is, and opens a recording. */
enum voxel_code diff_source_parse(const char *text, struct diff_source *source,
                                  struct voxel_error *error);
/* Finds DIR/example.npz, or that beside DIR/VERSION; false = there is none. */
bool diff_source_example(const struct diff_source *source, char path[PATH_MAX]);

struct diff_wanted {
    const char *voxeld;                     /* NULL = beside this program, else in PATH */
    const char *example;                    /* a .npz with coords and feats */
    const char *layers;                     /* NULL = all */
    const char *cache;                      /* of kernels, or NULL */
    const char *device_bytes, *cache_bytes; /* as 16G; NULL = voxeld's defaults */
    bool outputs_only;
};
enum voxel_code diff_source_record(struct diff_source *source,
                                   const struct diff_wanted *wanted,
                                   struct voxel_error *error);
void diff_source_close(struct diff_source *source);

#endif
