/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/commands.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/convert.h"
#include "clients/cli/plain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* More than this above the server's message_bytes_max, a request ends its connection. */
#define EXCESS_BYTES (64u << 20)

#define HINT_TLS                                                                         \
    " closed the connection: perhaps one of the two speaks TLS (--tls) and the other "   \
    "does not."

/* What to do about a Unix socket to which connect() answered EACCES. */
static void say_denied(const char *path)
{
    static const char *const see = "see clients/README.md, On the same host";
    if (!strncmp(path, "//", 2)) path += 2; /* unix://PATH */
    if (access(path, F_OK))
        fprintf(stderr, "This user may not enter a folder above the socket; %s.\n", see);
    else
        fprintf(stderr,
                "A socket is there, and this user may not connect to it: its group may "
                "(mode 0660); %s.\n",
                see);
}

const struct voxel_tls *cli_tls_of(const struct cli_tls *tls)
{
    const struct voxel_tls *files = &tls->files;
    bool wanted = tls->on || files->ca_file || files->cert_file || files->key_file ||
                  files->server_name;
    return wanted ? files : NULL;
}

/* What to do where a connection fails, by what gRPC says of it: the first that is a part of that.  What is
 * said has the server's address between `before` and `after`. */
static const struct hint {
    const char *part, *before, *after;
    bool closed; /* by the server, perhaps because of what was sent */
} hints[] = {
    {"http1.x server", "The server at ",
     " speaks HTTP/1, as voxeld's status page does. gRPC has another port: by "
     "default " CLI_SERVER ", see `voxeld serve --grpc`.",
     false},
    {"certificate verify failed", "The server at ",
     " answers, but its certificate is of no authority that is trusted here "
     "(--tls-ca).",
     false},
    {"is not in peer certificate", "The server at ",
     " answers, but its certificate has another name; --tls-name says which one is "
     "expected.",
     false},
    {"Endpoint read failed", "The server at ",
     " ended the handshake of TLS: perhaps it wants a certificate that its authority has "
     "signed (--tls-cert, --tls-key).",
     false},
    {"empty address list", "The server at ",
     " was not asked: gRPC cannot use the certificate and its key, which are perhaps no "
     "pair (--tls-cert, --tls-key).",
     false},
    {"reset by peer", "The server at ", HINT_TLS, true},
    {"Socket closed", "The server at ", HINT_TLS, true},
    {"Broken pipe", "The server at ", HINT_TLS, true},
    {"andshake failed", "The server at ", HINT_TLS, false},
    {"connect", "No server answers at ",
     ". Start one with `voxeld serve`, or name its address with --server HOST:PORT.",
     false},
};

/* `sent` is the request's bytes, behind an answer to another one on this connection; so
 * TLS is not what is wrong. */
static void say_closed(const char *server, uint64_t sent)
{
    fprintf(stderr, "The server at %s closed the connection before it answered", server);
    if (sent > EXCESS_BYTES)
        fprintf(stderr,
                ": perhaps the request (%s) exceeds its message_bytes_max by more than "
                "64 MiB",
                cli_bytes(sent));
    fprintf(stderr, "; its log has the reason.\n");
}

/* sent: NULL before the connection has answered anything. */
static void say_hint(const char *server, const char *text, const uint64_t *sent)
{
    if (!strncmp(server, "unix:", 5) && strstr(text, strerror(EACCES))) {
        say_denied(server + 5);
        return;
    }
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        if (!strstr(text, hints[i].part)) continue;
        if (hints[i].closed && sent) {
            say_closed(server, *sent);
            return;
        }
        fprintf(stderr, "%s%s%s\n", hints[i].before, server, hints[i].after);
        return;
    }
}

static int say_refused(const char *command, const char *server, const uint64_t *sent,
                       const struct voxel_error *error)
{
    char text[PLAIN_BYTES];
    cli_progress(NULL);
    fprintf(stderr, "voxel %s: %s: %s\n", command, voxel_code_name(error->code),
            plain_text(error->text, text));
    if (error->code == VOXEL_UNAVAILABLE) say_hint(server, error->text, sent);
    return CLI_REFUSED;
}

int cli_say_error(const char *command, const char *server,
                  const struct voxel_error *error)
{
    return say_refused(command, server, NULL, error);
}

uint64_t cli_request_bytes(const struct voxel_request *request)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < request->inputs_count; i++)
        if (!request->inputs[i].region) bytes += request->inputs[i].bytes;
    return bytes;
}

int cli_say_refused(const char *command, const char *server, uint64_t sent,
                    const struct voxel_error *error)
{
    return say_refused(command, server, &sent, error);
}

int cli_say_input(const char *command, const struct voxel_error *error)
{
    char text[PLAIN_BYTES];
    cli_progress(NULL);
    fprintf(stderr, "voxel %s: %s\n", command, plain_text(error->text, text));
    return CLI_USAGE;
}

/* Right voxels hardly ever look so: --quiet does not hide this. */
static void say_scattered(const char *command, const char *file,
                          const struct cloud *cloud)
{
    char size[CLOUD_SIZE_BYTES];
    fprintf(stderr,
            "voxel %s: warning: %s: hardly any of the %" PRId64
            " voxels has another beside it, so a network sees each alone: %s%s%s\n",
            command, file, cloud->count,
            cloud->whole ? "are the integers voxels? those in another unit need --voxel"
                         : "is the size of a voxel, ",
            cloud->whole ? "" : cloud_size_text(cloud, size),
            cloud->whole ? " SIZE" : ", in the unit of the positions?");
}

void cli_say_cloud(const char *command, const char *file, const struct cloud *cloud,
                   bool quiet)
{
    cli_progress(NULL);
    if (cloud->dropped)
        fprintf(stderr,
                "voxel %s: %s: left out %" PRId64
                " of the points, which have no position (NaN or infinite)\n",
                command, file, cloud->dropped);
    if (cloud->scattered) say_scattered(command, file, cloud);
    if (cloud->feats_odd)
        fprintf(stderr,
                "voxel %s: warning: %s: feats are NaN or infinite in %" PRId64
                " of the %" PRId64 " voxels, and so may be what a network makes of them "
                "and of their neighbours\n",
                command, file, cloud->feats_odd, cloud->count);
    if (quiet) return;
    if (*cloud->size_came)
        fprintf(stderr,
                "voxel %s: %s: its voxel_size is not used: expected a number above 0, or "
                "three, got %s\n",
                command, file, cloud->size_came);
    if (cloud->merged)
        fprintf(stderr,
                "voxel %s: %s: merged %" PRId64 " of %" PRId64
                " points into the voxel of an earlier point%s: %" PRId64 " voxels\n",
                command, file, cloud->merged, cloud->merged + cloud->count,
                cloud->channels ? ", feats averaged" : "", cloud->count);
    if (cloud->channels && *cloud->unused)
        fprintf(stderr, "voxel %s: %s: not used: %s\n", command, file, cloud->unused);
    if (cloud->scaled)
        fprintf(stderr,
                "voxel %s: %s: 8-bit feats were divided by 255 (--raw-feats sends them "
                "unchanged)\n",
                command, file);
}

void cli_progress(const char *text)
{
    static bool shown;
    if (!isatty(STDERR_FILENO)) return;
    if (!text && !shown) return;
    shown = text != NULL;
    fprintf(stderr, "\r\033[K%s", text ? text : "");
    fflush(stderr);
}

/* Four buffers in turn, so that one printf can use several. */
static char *next_text(void)
{
    static char texts[4][160];
    static unsigned next;
    return texts[next++ % 4];
}

const char *cli_bytes(uint64_t bytes)
{
    char *text = next_text();
    if (bytes < 10000)
        snprintf(text, 160, "%" PRIu64 " B", bytes);
    else if (bytes < 10000000)
        snprintf(text, 160, "%.1f kB", (double)bytes / 1e3);
    else
        snprintf(text, 160, "%.1f MB", (double)bytes / 1e6);
    return text;
}

const char *cli_shape(const char *type, const int64_t *shape, int32_t rank)
{
    char *text = next_text();
    int used = snprintf(text, 160, "%.16s [", type);
    for (int32_t i = 0; i < rank; i++)
        used += snprintf(text + used, 160 - (size_t)used, "%s%" PRId64, i ? ", " : "",
                         shape[i]);
    snprintf(text + used, 160 - (size_t)used, "]");
    return text;
}

static enum voxel_type feats_type(const char *dtype)
{
    static const struct {
        const char *name;
        enum voxel_type type;
    } names[] = {{"fp32", VOXEL_FP32}, {"fp16", VOXEL_FP16}, {"bf16", VOXEL_BF16}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, dtype) == 0) return names[i].type;
    return VOXEL_NONE;
}

static bool is_float(enum voxel_type type)
{
    return type == VOXEL_FP32 || type == VOXEL_FP16 || type == VOXEL_BF16;
}

enum voxel_code model_inputs_find(const struct voxel_model_info *info, const char *dtype,
                                  int32_t channels, struct model_inputs *inputs,
                                  struct voxel_error *error)
{
    memset(inputs, 0, sizeof *inputs);
    for (int32_t i = 0; i < info->inputs_count; i++) {
        const struct voxel_tensor_info *input = &info->inputs[i];
        if (input->rank == 2 && input->type == VOXEL_INT32 && !inputs->coords)
            inputs->coords = input;
        if (input->rank == 2 && is_float(input->type) && !inputs->feats)
            inputs->feats = input;
    }
    if (!inputs->coords || !inputs->feats || info->inputs_count != 2)
        return voxel_error_set(
            error, VOXEL_INVALID_ARGUMENT,
            "model '%s' does not take voxels: its inputs are not INT32 "
            "coords [N,4] and float feats [N,C]",
            info->name);
    inputs->columns = inputs->coords->shape[1] == 3 ? 3 : 4;
    inputs->type = dtype ? feats_type(dtype) : inputs->feats->type;
    if (inputs->type == VOXEL_NONE)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "--dtype: expected fp32, fp16 or bf16, not '%s'", dtype);
    int64_t wanted = inputs->feats->shape[1];
    if (wanted > FEATS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "model '%s' takes feats of %" PRId64
                               " channels; at most %d are sent",
                               info->name, wanted, FEATS_MAX);
    if (channels && wanted > 0 && wanted != channels)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "model '%s' takes feats of %" PRId64
                               " channels, but there are %d",
                               info->name, wanted, (int)channels);
    inputs->channels = wanted > 0 ? (int32_t)wanted : channels ? channels : 1;
    return VOXEL_OK;
}

static const struct voxel_tensor_info *find_output(const struct voxel_model_info *info,
                                                   const char *name)
{
    for (int32_t i = 0; i < info->outputs_count; i++)
        if (strcmp(info->outputs[i].name, name) == 0) return &info->outputs[i];
    return NULL;
}

enum voxel_code answer_check_model(const struct voxel_answer *answer,
                                   const struct voxel_model_info *info,
                                   struct voxel_error *error)
{
    for (int32_t i = 0; i < answer->outputs_count; i++) {
        const struct voxel_tensor *output = &answer->outputs[i];
        const struct voxel_tensor_info *said = find_output(info, output->name);
        if (!said)
            return voxel_error_set(
                error, VOXEL_INTERNAL,
                "the answer has output '%s', which model '%s' does not have",
                output->name, info->name);
        bool fits = said->type == output->type && said->rank == output->rank;
        for (int32_t d = 0; d < output->rank && fits; d++)
            fits = said->shape[d] < 0 || said->shape[d] == output->shape[d];
        if (fits) continue;
        return voxel_error_set(
            error, VOXEL_INTERNAL, "output '%s' is %s, but model '%s' declares %s",
            output->name,
            cli_shape(voxel_type_name(output->type), output->shape, output->rank),
            info->name, cli_shape(said->type_name, said->shape, said->rank));
    }
    return VOXEL_OK;
}

static enum voxel_code fill_feats(const struct cloud *cloud,
                                  const struct model_inputs *inputs, void *out,
                                  struct voxel_error *error)
{
    int64_t cells = cloud->count * inputs->channels;
    float *wide = out;
    uint16_t *narrow = out;
    for (int64_t i = 0; i < cells; i++) {
        float value = cloud->feats ? cloud->feats[i] : 1.0f;
        if (convert_overflows((double)value, inputs->type)) {
            const struct convert_cell cell = {
                i / inputs->channels, (int32_t)(i % inputs->channels), (double)value};
            return convert_refuse(&cell, inputs->type, error);
        }
        if (inputs->type == VOXEL_FP32)
            wide[i] = value;
        else
            narrow[i] = inputs->type == VOXEL_FP16 ? convert_to_half(value)
                                                   : convert_to_bfloat(value);
    }
    return VOXEL_OK;
}

enum voxel_code request_tensors_make(const struct cloud *cloud,
                                     const struct model_inputs *inputs,
                                     struct request_tensors *tensors,
                                     struct voxel_error *error)
{
    size_t rows = (size_t)cloud->count;
    size_t cell = voxel_type_bytes(inputs->type);
    memset(tensors, 0, sizeof *tensors);
    tensors->memory[0] =
        voxel_memory_take(rows, (size_t)inputs->columns * sizeof(int32_t));
    tensors->memory[1] = voxel_memory_take(rows, (size_t)inputs->channels * cell);
    if (!tensors->memory[0] || !tensors->memory[1]) {
        request_tensors_fini(tensors);
        return voxel_error_memory(error, "a request", rows * 16);
    }
    int32_t *coords = tensors->memory[0];
    int32_t skip = 4 - inputs->columns;
    for (int64_t i = 0; i < cloud->count; i++)
        memcpy(&coords[i * inputs->columns], &cloud->coords[4 * i + skip],
               (size_t)inputs->columns * sizeof(int32_t));
    enum voxel_code code = fill_feats(cloud, inputs, tensors->memory[1], error);
    if (code) {
        request_tensors_fini(tensors);
        return code;
    }
    tensors->list[0] = voxel_tensor_make(inputs->coords->name, VOXEL_INT32, cloud->count,
                                         inputs->columns, tensors->memory[0]);
    tensors->list[1] = voxel_tensor_make(inputs->feats->name, inputs->type, cloud->count,
                                         inputs->channels, tensors->memory[1]);
    return VOXEL_OK;
}

void request_tensors_fini(struct request_tensors *tensors)
{
    voxel_memory_give(tensors->memory[0]);
    voxel_memory_give(tensors->memory[1]);
    memset(tensors, 0, sizeof *tensors);
}
