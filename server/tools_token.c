/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/tools.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/print.h"
#include "engine/base/text/typed.h"
#include "server/access/access_file.h"

#include <string.h>
#include <time.h>

static const char token_usage[] =
    "voxeld token new NAME\n"
    "voxeld token check FILE\n"
    "\n"
    "new prints a fresh token of 256 random bits to standard output, and to standard "
    "error\n"
    "the entry of it for the file of voxeld serve --tokens. The token is stored nowhere, "
    "and\n"
    "the entry has only its SHA-256. A client sends the token as the metadata\n"
    "authorization: Bearer TOKEN.\n"
    "\n"
    "check reads such a file as voxeld serve does, and prints who may do what.\n"
    "\n"
    "The file is JSON, and lines that begin with // are comments:\n"
    "\n"
    "  {\"tokens\": [\n"
    "    {\"name\": \"street-cameras\",\n"
    "     \"sha256\": \"64 hexadecimal digits\",\n"
    "     \"models\": [\"normals\", \"street-*\"],\n"
    "     \"methods\": [\"infer\", \"read\"],\n"
    "     \"limits\": {\"requests\": {\"per_second\": 100, \"burst\": 200},\n"
    "                \"bytes\": {\"per_second\": 50e6}, \"voxels\": {\"per_second\": "
    "5e6}},\n"
    "     \"expires\": \"2027-01-31T00:00:00Z\"}]}\n"
    "\n"
    "models     names, or patterns in which * is any text and ? any byte; [\"*\"] is "
    "all\n"
    "methods    infer     ModelInfer, ModelStreamInfer\n"
    "           read      metadata, configuration, statistics, index, reflection, health "
    "of\n"
    "                     models; `voxel infer` and other commands need it, too\n"
    "           load      RepositoryModelLoad, RepositoryModelUnload\n"
    "           settings  LogSettings, TraceSetting\n"
    "           memory    SystemSharedMemory*, CudaSharedMemory*\n"
    "           admin     the pages of the admin port, with --token-admin\n"
    "           health    ServerLive, ServerReady, Check: every token has it\n"
    "limits     what a second brings back, and the most that is kept; without \"burst\" "
    "what\n"
    "           one second brings; with \"anyone\" no request may take more at once\n"
    "sha256     may be a list of up to 4: the old and the new one while clients change\n"
    "\n"
    "\"certificate\": \"SUBJECT\" stands for a client's certificate in place of a token, "
    "and\n"
    "\"anyone\": true for clients that send no token and whose certificate, if they have "
    "one,\n"
    "no entry names.\n";

static int token_new(const char *name)
{
    char token[VX_ACCESS_TOKEN_TEXT_BYTES], hex[VX_SHA256_HEX_BYTES];
    struct vx_access_key key;
    vx_status st = vx_access_token_make(token);
    if (st.fault) {
        vx_print_error("voxeld token: %s\n", vx_status_text(st, NULL));
        return 1;
    }
    vx_access_key_of(VX_ACCESS_TOKEN, token, strlen(token), &key);
    vx_sha256_hex(key.digest, hex);
    vx_print("%s\n", token);
    explicit_bzero(token, sizeof token);
    vx_print_error("{\"name\": \"%s\", \"sha256\": \"%s\", \"models\": [\"*\"], "
                   "\"methods\": [\"infer\", \"read\"]}\n",
                   name, hex);
    return 0;
}

static void print_expiry(i64 ms)
{
    char text[32];
    time_t seconds = (time_t)(ms / 1000);
    struct tm day;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &day));
    vx_print("\n  expires %s%s", text,
             vx_clock_wall_ms() >= ms ? ", and that was in the past" : "");
}

static void print_entry(const struct vx_access_entry *entry)
{
    vx_print("%s\n  models ", entry->name);
    for (i32 m = 0; m < entry->models_count; m++) vx_print(" %s", entry->models[m]);
    vx_print("\n  methods");
    for (i32 g = 0; g < VX_ACCESS_GROUPS; g++)
        if (entry->groups >> g & 1)
            vx_print(" %s", vx_access_group_name((enum vx_access_group)g));
    for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
        if (entry->limits[u].per_s > 0)
            vx_print(
                "\n  %s %.15g per second, after a pause %.15g at once or one request "
                "of any size",
                vx_access_unit_name((enum vx_access_unit)u), entry->limits[u].per_s,
                entry->limits[u].burst);
    if (entry->expires_ms) print_expiry(entry->expires_ms);
    vx_print("\n");
}

static int token_check(const char *path)
{
    struct vx_why why = {""};
    bool open = false;
    struct vx_access_table *table = vx_alloc_zero(sizeof *table);
    if (!table) return 1;
    vx_status st = vx_access_file_read(path, &why, table, &open);
    if (st.fault) vx_print_error("voxeld token check: %s\n", vx_status_text(st, &why));
    for (i32 e = 0; !st.fault && e < table->entries_count; e++)
        print_entry(&table->entries[e]);
    if (!st.fault && open)
        vx_print_error("voxeld token check: others may read %s: chmod o-r\n", path);
    vx_free(table);
    return st.fault ? 1 : 0;
}

int vx_tool_token(int count, char **arguments)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", token_usage);
        return 0;
    }
    bool makes = count == 2 && !strcmp(arguments[0], "new");
    if (count == 2 && !strcmp(arguments[0], "check")) return token_check(arguments[1]);
    if (makes && arguments[1][0] && strlen(arguments[1]) < VX_ACCESS_NAME_BYTES &&
        strspn(arguments[1], letters) == strlen(arguments[1]))
        return token_new(arguments[1]);
    if (makes)
        vx_print_error("voxeld token new: expected a name of 1 to %d letters, digits and "
                       ". _ -, got \"%.64s\"\n",
                       VX_ACCESS_NAME_BYTES - 1, arguments[1]);
    else
        vx_print_error("voxeld token: expected new NAME or check FILE, got %s\n",
                       count ? arguments[0] : "nothing");
    return 2;
}
