/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/commands.h"

#include "clients/c/digest.h"
#include "clients/c/error.h"
#include "clients/c/limits.h"
#include "clients/cli/axes.h"
#include "clients/cli/coords_ref.h"
#include "clients/cli/deliver.h"
#include "clients/cli/out.h"
#include "clients/cli/render/render.h"
#include "clients/cli/save.h"
#include "clients/cli/shm.h"
#include "clients/cli/sparse.h"
#include "clients/cli/summary.h"
#include "clients/cli/token.h"
#include "clients/cli/traceparent.h"
#include "clients/cli/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct infer_options {
    const char *server, *model, *file, *out, *picture, *output, *dtype, *id, *coords_ref,
        *feats, *shape, *token_file, *traceparent, *axes;
    struct cli_tls tls;
    struct view_options view;
    double voxel, timeout_ms;
    int64_t version, priority, sample; /* sample -1 = not set */
    bool quiet, name_geometry, resend, shm, raw_feats, one_sample, no_geometry_header;
    bool layers;
    struct render_view render;
    struct voxel_geometry geometry; /* of --coords-ref */
};

static const char examples[] =
    "FILE is a .ply with x, y and z; a .npy with an array [N,3] or [N,4]; or a .npz\n"
    "with such an array named coords and, optionally, an array feats [N,C].\n\n"
    "Columns: of 4 columns the first is the sample (0 to 511; in a .ply the property\n"
    "sample). The others are three axes (-131072 to 131071), in the order that the\n"
    "network was trained with: pass spconv's [b, z, y, x] unchanged. x, y and z of a\n"
    ".ply are put into the order that the model says (network.json's\n"
    "inputs.coords.axes; voxel models shows it), or --axes; if neither says one, they\n"
    "are columns 1, 2 and 3. A .ply and a picture that are written have x, y and z by\n"
    "the same order.\n\n"
    "Voxels: integers are voxels, and each voxel may occur once. Other points, and all\n"
    "points with --voxel, are put on a grid: points that share a voxel are merged, and\n"
    "their feats are averaged. The voxel_size of a file of integers (a comment of a\n"
    ".ply, in a .npz a number, or three) has no effect on the voxels; OUT gets it.\n"
    "A file of integer voxels needs no --voxel: the option would divide them again.\n"
    "A .npz's voxel_size is never used to place points.\n"
    "With --voxel SIZE a point p lies in voxel floor(p / SIZE + 1/1024), because files\n"
    "of floats hold the corner of voxel 17 as 16.9999 sizes. For the exact floor of a\n"
    "training store floor(p / SIZE) as integers and use --voxel 1.\n\n"
    "Feats: 8-bit unsigned feats (colours) of a .ply are divided by 255; uint8 and bool\n"
    "feats of a .npz, and unsigned 16 bits of both, are refused. --raw-feats sends them\n"
    "unchanged. Without feats a model of one channel gets 1 everywhere.\n\n"
    "Samples: a file that has samples elsewhere is refused, as in a property frame or\n"
    "scan_id, and so is a .npz with an array that may hold samples, such as N integers\n"
    "beside coords [N,3]. --one-sample accepts such a file as one sample.\n\n"
    "Names: --name-geometry prints NAME:DIGEST. Given both, --coords-ref refuses a FILE\n"
    "with other coords, or with the same in another order; with --resend it sends them.\n"
    "Given NAME alone, --coords-ref cannot compare, and assumes that NAME stands for\n"
    "the coords of FILE; with --resend it sends them.\n\n"
    "Output: OUT.npz has the coords and the output. OUT.npy has the output, and\n"
    "OUT.coords.npy beside it has the coords. An output on other voxels than the\n"
    "file's is written and drawn with its own. The voxel_size of OUT is always that of\n"
    "coords, whatever their stride: the lower corners of voxels are coords times\n"
    "voxel_size. It is three numbers for voxels that are no cubes.\n\n"
    "Several outputs: without --output OUT.npz has all of them, under their names. Then\n"
    "coords are those of FILE. An output NAME on other voxels has theirs in another\n"
    "output of the model: NAME_coords, unless its network.json names it otherwise.\n"
    "stride.NAME is how many voxels of FILE one is. OUT.npy and OUT.ply get the first\n"
    "output, or the one that --output names.\n\n"
    "examples:\n"
    "  voxel infer --model normals scan.ply -o normals.ply --render normals.png\n"
    "  voxel infer --model segment room.npz -o labels.npz --output logits\n"
    "  voxel infer --model colours scan.ply --voxel 0.05 --feats red,green,blue -o "
    "c.npy\n"
    "  voxel infer --model normals scan.ply --server unix:/run/voxeld.sock --shm\n\n"
    "exit code: 0 done, 1 the server refused or is away, 2 wrong options or file";

static enum voxel_code check_paths(const struct infer_options *options,
                                   struct voxel_error *error)
{
    enum voxel_code code = VOXEL_OK;
    if (options->out) code = save_check_path(options->out, options->file, error);
    if (!code && options->out) code = out_check(options->out, error);
    if (!code && options->picture) code = render_check_path(options->picture, error);
    if (!code && options->picture)
        code = out_check_input(options->picture, options->file, error);
    if (!code && options->picture) code = out_check(options->picture, error);
    return code;
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    return dot && strcmp(dot, ending) == 0;
}

static int check_idle(const struct command *command, const struct infer_options *o)
{
    static const char drawn[] = "it applies only to --render PNG";
    const bool ply = ends_in(o->file, ".ply"), npy = ends_in(o->file, ".npy");
    const struct option_idle idle[] = {
        {"sample", !o->picture, drawn},
        {"view", !o->picture, drawn},
        {"size", !o->picture, drawn},
        {"up", !o->picture, drawn},
        {"isometric", !o->picture, drawn},
        {"axes", !ply && !o->picture && !ends_in(o->out, ".ply"),
         "it applies only to a .ply or a picture"},
        {"layers", o->quiet, "--quiet hides what it prints"},
        {"raw-feats", npy, "it applies only to feats of a .ply or .npz"},
        {"raw-feats", ply && !o->feats, "it applies only to --feats NAMES"},
        {"one-sample", npy, "it applies only to a .ply or .npz; a .npy has only coords"},
    };
    return options_refuse_idle(command, idle, sizeof idle / sizeof *idle);
}

/* Checks what the table of options cannot express. */
static int check_options(const struct command *command, struct infer_options *options)
{
    struct voxel_error error;
    if (!options->file) {
        fprintf(stderr,
                "voxel infer: expected a file of points (see voxel infer --help)\n");
        return CLI_USAGE;
    }
    if (!options->model) {
        fprintf(stderr, "voxel infer: --model NAME is required; `voxel models` lists the "
                        "models\n");
        return CLI_USAGE;
    }
    if (options->resend && !options->coords_ref) {
        fprintf(stderr, "voxel infer: --resend needs --coords-ref NAME\n");
        return CLI_USAGE;
    }
    if (options->axes && !voxel_axes_are_order(options->axes))
        return options_bad(command, "axes",
                           "the axes of columns 1 to 3, such as xyz or zyx",
                           options->axes);
    if (options->coords_ref && !coords_ref_parse(options->coords_ref, &options->geometry))
        return options_bad(command, "coords-ref",
                           "what --name-geometry printed, NAME:DIGEST, or NAME",
                           options->coords_ref);
    if (options->traceparent && !traceparent_is(options->traceparent))
        return options_bad(command, "traceparent",
                           "00-TRACE-SPAN-FLAGS of 32, 16 and 2 digits, hexadecimal in "
                           "lower case, the ids not 0, as "
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                           options->traceparent);
    if (check_idle(command, options)) return CLI_USAGE;
    if (check_paths(options, &error)) return cli_say_input("infer", &error);
    return view_read(command, &options->view, &options->render);
}

/* Sends the request with the coordinates, or with their name instead. */
static enum voxel_code send_request(const struct infer_options *options,
                                    struct voxel_client *client,
                                    struct voxel_request *request,
                                    struct voxel_answer **answer,
                                    struct voxel_error *error)
{
    struct voxel_geometry geometry = options->geometry;
    if (!options->coords_ref) {
        request->coords_ref = options->name_geometry ? "" : NULL;
        return voxel_infer(client, request, answer, error);
    }
    if (!options->resend) {
        request->coords_ref = options->geometry.name;
        request->named_coords = request->inputs++; /* coords come first */
        request->inputs_count--;
        return voxel_infer(client, request, answer, error);
    }
    return voxel_infer_geometry(client, request, &geometry, answer, error);
}

/* All that a request borrows while it is under way, and that its outputs point into. */
struct sending {
    struct voxel_client *client;
    struct voxel_model_info *info;
    struct request_tensors tensors;
    struct shm_request shm;
    struct voxel_digest digest; /* of the coords */
    uint64_t sent_bytes;
};

static void sending_fini(struct sending *sending)
{
    shm_request_close(&sending->shm);
    request_tensors_fini(&sending->tensors);
    voxel_info_free(sending->info);
}

/* Prints the digest with the name only if the name is known to stand for these coords. */
static void print_name(const struct infer_options *options, const struct sending *sending,
                       const struct voxel_answer *answer)
{
    char text[COORDS_REF_BYTES];
    struct voxel_geometry geometry = {.name = ""};
    const struct voxel_parameter *name =
        voxel_answer_find_parameter(answer, "coords_ref");
    if (!options->name_geometry || !name) return;
    snprintf(geometry.name, sizeof geometry.name, "%s", name->text);
    if (!options->coords_ref || options->resend ||
        coords_ref_has_digest(&options->geometry))
        geometry.digest = sending->digest;
    printf("%s%s\n",
           options->quiet ? "" : "for --coords-ref: ", coords_ref_text(&geometry, text));
}

/* Refuses a name that stands for other coords: its answer would belong to those. */
static int check_name(const struct infer_options *options, const struct sending *sending)
{
    struct voxel_geometry here = options->geometry;
    char expected[COORDS_REF_BYTES];
    char came[COORDS_REF_BYTES];
    if (!options->coords_ref || options->resend) return CLI_DONE;
    if (!coords_ref_has_digest(&here)) {
        fprintf(
            stderr,
            "voxel infer: warning: --coords-ref: the name has no digest, so it was not "
            "checked that it stands for the coords of %s\n",
            options->file);
        return CLI_DONE;
    }
    here.digest = sending->digest;
    if (voxel_digest_same(&here.digest, &options->geometry.digest)) return CLI_DONE;
    fprintf(stderr,
            "voxel infer: --coords-ref: %s has other coords, or the same in another "
            "order: expected %s, got %s; with --resend they are sent\n",
            options->file, coords_ref_text(&options->geometry, expected),
            coords_ref_text(&here, came));
    return CLI_USAGE;
}

/* Feats of 1 are right only if the file has none: so --quiet does not hide this. */
static void warn_of_ones(const struct infer_options *options, const struct cloud *cloud)
{
    if (cloud->channels || !*cloud->offers) return;
    fprintf(
        stderr,
        "voxel infer: warning: %s: no feats were named, so all are sent as 1; the file "
        "has: %s (use --feats NAME)\n",
        options->file, cloud->offers);
}

/* Puts the columns into the order that the user says, or the model. */
static void place_columns(const struct infer_options *options,
                          const struct voxel_model_limits *limits, struct cloud *cloud)
{
    const char *axes = options->axes ? options->axes : limits->axes;
    if (!*axes) return;
    cloud_place(cloud, axes);
    if (cloud->named && !options->quiet && strcmp(axes, "xyz") != 0)
        fprintf(stderr,
                "voxel infer: %s: columns 1 to 3 of coords are %c, %c and %c, as %s\n",
                options->file, axes[0], axes[1], axes[2],
                options->axes ? "--axes says" : "the model's network.json says");
}

/* Gets the model's inputs and makes their tensors from the cloud. */
static int ask_model(const struct infer_options *options, struct sending *sending,
                     struct cloud *cloud)
{
    const struct voxel_model_name name = {options->model, options->version};
    struct voxel_model_limits limits;
    struct model_inputs inputs;
    struct voxel_error error;
    if (voxel_model_info_get(sending->client, &name, &sending->info, &error) ||
        voxel_model_limits_get(sending->client, &name, &limits, &error))
        return cli_say_error("infer", options->server, &error);
    place_columns(options, &limits, cloud);
    enum voxel_code code = model_inputs_find(sending->info, options->dtype,
                                             cloud->channels, &inputs, &error);
    if (!code)
        code = save_check_output(options->out, options->picture, options->output,
                                 sending->info, &error);
    if (!code && !cloud->channels && inputs.channels > 1)
        code = voxel_error_set(
            &error, VOXEL_INVALID_ARGUMENT,
            "model '%s' needs feats of %d channels, but none were chosen from %s: "
            "name them with --feats (the file has: %s), or use a .npz with an array "
            "feats [N,%d]",
            options->model, (int)inputs.channels, options->file,
            *cloud->offers ? cloud->offers : "only coordinates", (int)inputs.channels);
    if (!code) code = request_tensors_make(cloud, &inputs, &sending->tensors, &error);
    if (code) return cli_say_input("infer", &error);
    warn_of_ones(options, cloud);
    const struct voxel_request coords = {.inputs = sending->tensors.list,
                                         .inputs_count = 1};
    voxel_digest_coords(&coords, &sending->digest);
    return check_name(options, sending);
}

static enum voxel_code run_request(const struct infer_options *options,
                                   struct sending *sending, struct voxel_answer **answer,
                                   struct voxel_error *error)
{
    enum voxel_code code = VOXEL_OK;
    const struct shm_plan plan = {.info = sending->info,
                                  .tensors = &sending->tensors,
                                  .output = options->output,
                                  .sets = 1};
    if (options->shm)
        code = shm_request_open(sending->client, &plan, &sending->shm, error);
    if (code) return code;
    const char *outputs[SPARSE_OUTPUTS_MAX];
    struct voxel_request request = {
        .model = options->model,
        .version = options->version,
        .id = options->id,
        .traceparent = options->traceparent,
        .inputs = sending->tensors.list,
        .inputs_count = 2,
        .outputs = outputs,
        .outputs_count = sparse_outputs(sending->info, options->output, outputs),
        .places = sending->shm.places,
        .places_count = sending->shm.outputs_count,
        .priority = (uint64_t)options->priority,
        .timing = true,
        .layers = options->layers,
        .spatial_shape = options->shape};
    cli_progress("waiting for the answer");
    code = send_request(options, sending->client, &request, answer, error);
    sending->sent_bytes = cli_request_bytes(&request);
    if (!code) code = answer_check_model(*answer, sending->info, error);
    cli_progress(NULL);
    return code;
}

static int run_infer(const struct infer_options *options, struct cloud *cloud)
{
    struct sending sending = {0};
    struct voxel_answer *answer = NULL;
    struct voxel_error error;
    struct voxel_options connection = {.deadline_us =
                                           (int64_t)(options->timeout_ms * 1e3),
                                       .no_geometry_header = options->no_geometry_header,
                                       .tls = cli_tls_of(&options->tls)};
    int bad = cli_token_get("infer", options->token_file, options->server, &connection);
    if (bad) return bad;
    if (voxel_client_open(options->server, &connection, &sending.client, &error))
        return cli_say_input("infer", &error);
    int code = ask_model(options, &sending, cloud);
    if (!code && run_request(options, &sending, &answer, &error)) {
        code = cli_say_refused("infer", options->server, sending.sent_bytes, &error);
    } else if (!code) {
        if (!options->quiet) summary_print(options->file, cloud, answer);
        print_name(options, &sending, answer);
        fflush(stdout);
        const struct delivery delivery = {.out = options->out,
                                          .picture = options->picture,
                                          .output = options->output,
                                          .view = &options->render,
                                          .sample = (int32_t)options->sample,
                                          .quiet = options->quiet};
        code = deliver(&delivery, cloud, answer);
    }
    voxel_answer_free(answer);
    sending_fini(&sending);
    voxel_client_close(sending.client);
    return code;
}

/* Picks the sample that is drawn, and reports it if there are others.  CLI_USAGE if the
 * sample that the user set has no voxel. */
static int pick_sample(struct infer_options *options, const struct cloud *cloud)
{
    bool one = true;
    bool there = false;
    for (int64_t row = 0; row < cloud->count; row++) {
        one &= cloud->coords[4 * row] == cloud->coords[0];
        there |= cloud->coords[4 * row] == options->sample;
    }
    bool said = options->sample >= 0;
    if (said && !there) {
        fprintf(stderr, "voxel infer: --sample: %s has no voxel of sample %" PRId64 "\n",
                options->file, options->sample);
        return CLI_USAGE;
    }
    if (!said) options->sample = cloud->count ? cloud->coords[0] : 0;
    if (options->picture && !one && !said && !options->quiet)
        fprintf(stderr,
                "voxel infer: %s has several samples: sample %" PRId64
                " is drawn (--sample N draws another)\n",
                options->file, options->sample);
    return CLI_DONE;
}

static int read_cloud(struct infer_options *options, struct cloud *cloud)
{
    struct points points;
    struct voxel_error error;
    const struct feats_asked asked = {options->feats, options->raw_feats,
                                      options->one_sample};
    cli_progress("reading");
    enum voxel_code code = points_read_file(options->file, &asked, &points, &error);
    if (!code) {
        cli_progress("placing points on the grid");
        code = cloud_make(&points, options->voxel, cloud, &error);
        points_fini(&points);
    }
    if (code) return cli_say_input("infer", &error);
    cli_progress(NULL);
    cli_say_cloud("infer", options->file, cloud, options->quiet);
    summary_warn_samples(options->file, cloud);
    int exit_code = pick_sample(options, cloud);
    if (exit_code) cloud_fini(cloud);
    return exit_code;
}

int command_infer(int argc, char **argv)
{
    struct infer_options o = {.server = CLI_SERVER, .view = VIEW_OPTIONS, .sample = -1};
    uint64_t given = 0;
    const struct option options[] = {
#define VX_OPTION(name_, letter_, value_, kind_, member_, low_, high_, help_)            \
    {name_, letter_, value_, OPTION_##kind_, &o.member_, {low_, high_}, help_},
#include "clients/cli/infer.def"
#undef VX_OPTION
    };
    const struct command command = {
        .name = "infer",
        .synopsis = "--model NAME FILE [-o OUT] [--render PNG]",
        .about = "Sends the voxels of FILE (.ply, .npy or .npz) through a model.",
        .after = examples,
        .options = options,
        .options_count = sizeof options / sizeof *options,
        .given = &given,
        .positional = &o.file,
    };
    int code;
    if (!options_parse(&command, argc, argv, &code)) return code;
    code = check_options(&command, &o);
    if (code) return code;
    struct cloud cloud;
    code = read_cloud(&o, &cloud);
    if (code) return code;
    code = run_infer(&o, &cloud);
    cloud_fini(&cloud);
    return code;
}
