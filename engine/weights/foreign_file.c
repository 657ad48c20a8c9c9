/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights/foreign_file.h"

#include <string.h>

#define SAVE "; safetensors.torch.save_file writes one from its state_dict"

static const struct mark {
    const char *text;
    u8 length;
    const char *what;
} marks[] = {
    {"PK\x03\x04", 4, "a zip archive, as torch.save writes it (.pt, .pth)" SAVE},
    {"\x80\x02", 2, "a pickle, as old versions of torch.save write it (.pt, .pth)" SAVE},
    {"\x80\x04", 2, "a pickle" SAVE},
    {"\x80\x05", 2, "a pickle" SAVE},
    {"\x89HDF", 4, "an HDF5 file, as Keras writes it (.h5)"},
    {"\x93NUMPY", 6, "a NumPy array (.npy)"},
    {"\x1f\x8b", 2, "a file that gzip compressed"},
    {"GGUF", 4, "a GGUF file"},
    {"version https://git-lfs", 23, "a Git LFS pointer: git lfs pull fetches the file"},
    {"{", 1, "JSON text"},
    {"<", 1, "a web page"},
};

const char *vx_foreign_file(const u8 *data, size_t bytes)
{
    /* In a safetensors file a header that begins with '{' follows 8 bytes of length.
     * Those 8 bytes may look like another format's mark, so check the header first. */
    if (bytes > 8 && data[8] == '{') return NULL;
    for (size_t i = 0; i < VX_COUNT(marks); i++)
        if (bytes >= marks[i].length && !memcmp(data, marks[i].text, marks[i].length))
            return marks[i].what;
    return NULL;
}
