/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/client.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Authorities of a whole system are 250 KB. */
#define FILE_BYTES_MAX (4 << 20)

/* A file as a text with its NUL, or NULL.  Keys are read too: give() wipes. */
static enum voxel_code read_file(const char *what, const char *path, char **text,
                                 struct voxel_error *error)
{
    *text = NULL;
    if (!path) return VOXEL_OK;
    FILE *file = fopen(path, "rbe");
    char *made = file ? voxel_memory_take(1, FILE_BYTES_MAX + 1) : NULL;
    size_t got = made ? fread(made, 1, FILE_BYTES_MAX, file) : 0;
    int failed = errno;
    bool bad = !file || (made && (ferror(file) || got == 0 || got == FILE_BYTES_MAX ||
                                  memchr(made, 0, got)));
    if (file && made && !ferror(file)) failed = 0;
    if (file) fclose(file);
    if (!bad && made) {
        *text = made;
        return VOXEL_OK;
    }
    voxel_memory_give(made);
    if (file && !made) return voxel_error_memory(error, "a file of TLS", FILE_BYTES_MAX);
    return voxel_error_set(
        error, VOXEL_INVALID_ARGUMENT, "%s %s: expected a file in PEM: %s", what, path,
        failed ? strerror(failed) : "it is empty, too large, or has other bytes");
}

static void give(char *text)
{
    if (text) memset(text, 0, strlen(text));
    /* The compiler must not see that the text is released unread. */
    __asm__ volatile("" : : "r"(text) : "memory");
    voxel_memory_give(text);
}

static enum voxel_code check(const struct voxel_tls *tls, const char *ca,
                             const char *cert, const char *key, struct voxel_error *error)
{
    static const char certificate[] = "-----BEGIN CERTIFICATE-----";
    if (!tls->cert_file != !tls->key_file)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a client's certificate and its key belong together: "
                               "expected both or none");
    if (ca && !strstr(ca, certificate))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "ca_file %s: expected certificates in PEM, found none",
                               tls->ca_file);
    if (cert && !strstr(cert, certificate))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "cert_file %s: expected a certificate in PEM, found none",
                               tls->cert_file);
    if (key && !strstr(key, "PRIVATE KEY-----"))
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "key_file %s: expected a private key in PEM, found none",
                               tls->key_file);
    return VOXEL_OK;
}

enum voxel_code voxel_secure_make(const struct voxel_tls *tls,
                                  grpc_channel_credentials **credentials,
                                  struct voxel_error *error)
{
    char *ca = NULL, *cert = NULL, *key = NULL;
    *credentials = NULL;
    if (!tls) {
        *credentials = grpc_insecure_credentials_create();
        return VOXEL_OK;
    }
    enum voxel_code code = read_file("ca_file", tls->ca_file, &ca, error);
    if (!code) code = read_file("cert_file", tls->cert_file, &cert, error);
    if (!code) code = read_file("key_file", tls->key_file, &key, error);
    if (!code) code = check(tls, ca, cert, key, error);
    if (!code) {
        grpc_ssl_pem_key_cert_pair pair = {key, cert};
        *credentials = grpc_ssl_credentials_create_ex(ca, key ? &pair : NULL, NULL, NULL);
        if (!*credentials)
            code = voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "gRPC refused the files of TLS");
    }
    give(ca);
    give(cert);
    give(key);
    return code;
}
