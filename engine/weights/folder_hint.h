/* folder_hint - the model folder that a person probably meant, for error sentences.
 *
 * The most common mistakes are to name the repository itself, a file of a model, or the
 * folder of a version.
 *
 *   vx_folder_hint("repository", out)
 *       ("; it is a repository of models (a, b): name one of them, such as a")
 *
 * Owner    the caller's buffer.
 * Thread   any; it reads directories, so it may block.
 * Limits   VX_FOLDER_HINT_BYTES; texts are cut to fit.
 * Fails    never: "" when there is no hint.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_FOLDER_HINT_H
#define VX_ENGINE_MODEL_FOLDER_HINT_H

#define VX_FOLDER_HINT_BYTES 192

/* For a `directory` without a network.json that can be opened.  Returns `out`. */
const char *vx_folder_hint(const char *directory, char out[VX_FOLDER_HINT_BYTES]);
/* For a model's `directory` without weights of `version`: names what is there instead. */
const char *vx_version_hint(const char *directory, int version,
                            char out[VX_FOLDER_HINT_BYTES]);

#endif
