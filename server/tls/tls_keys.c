/* tls_keys - where private keys lie, and what a handshake has of them while it lasts.
 *
 * OpenSSL's secure heap holds the keys of certificates, those that a handshake makes for
 * itself (X25519, P-256, P-384) and what computing with both takes; it is left out of core
 * dumps, and nothing else is used when it is full.  Of its own accord OpenSSL keeps a
 * handshake's key until the connection ends: 2,016 connections filled 64 KiB, and no client
 * was let in any more.  Nor did the key of a certificate that had been replaced go before
 * the last connection that was made with it, and no more did lists of revoked certificates.
 *
 * So a handshake is lent what the files say, and gives it back when it is over, with the
 * key that it made.  The heap has a fixed size, whatever connections_max is: it is locked
 * in memory, and systems often let a process lock 64 KiB (RLIMIT_MEMLOCK).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/tls/tls_private.h"

#include <openssl/crypto.h>

#define SECURE_BYTES     (64 << 10)
#define SECURE_BYTES_MIN 16
/* What a handshake has made, at its most: a number of P-384, of 48 bytes, in a block of a
 * power of two.  X25519 and P-256 take 32. */
#define MADE_BYTES 64
/* What a step takes while it computes: nearly all of it for P-384. */
#define STEP_BYTES 4096
/* A certificate's key: of RSA 1,792 bytes with 4096 bits, 3,584 with 8192.  One is used,
 * one is read, one is of handshakes that began before. */
#define KEY_BYTES 4096
#define KEYS      3
/* Random numbers of each thread, under 600 bytes: handshakes, watcher, main. */
#define RANDOM_BYTES 4096

_Static_assert((VX_TLS_SESSIONS_MAX + VX_TLS_THREADS) * MADE_BYTES +
                       VX_TLS_THREADS * STEP_BYTES + KEYS * KEY_BYTES + RANDOM_BYTES <=
                   SECURE_BYTES,
               "all handshakes at once find room for their keys");

void vx_tls_keys_open(void)
{
    /* Without effect when it is there; without it keys lie in the usual heap. */
    if (!CRYPTO_secure_malloc_initialized())
        CRYPTO_secure_malloc_init(SECURE_BYTES, SECURE_BYTES_MIN);
}

const char *vx_tls_keys_full(void)
{
    void *most = OPENSSL_secure_malloc(KEY_BYTES);
    bool there = most != NULL;
    OPENSSL_secure_free(most);
    return there ? NULL : "no memory for keys: OpenSSL's secure heap of 64 KiB is full";
}

bool vx_tls_keys_lend(SSL_CTX *from, SSL *to)
{
    STACK_OF(X509) *chain = NULL;
    bool asks = SSL_CTX_get_verify_mode(from) != SSL_VERIFY_NONE;
    X509_STORE *store = SSL_CTX_get_cert_store(from);
    STACK_OF(X509_NAME) *names = SSL_dup_CA_list(SSL_CTX_get_client_CA_list(from));
    SSL_set_client_CA_list(to, names);
    SSL_set_verify(to, SSL_CTX_get_verify_mode(from), NULL);
    return (names || !asks) &&
           SSL_use_certificate(to, SSL_CTX_get0_certificate(from)) == 1 &&
           SSL_use_PrivateKey(to, SSL_CTX_get0_privatekey(from)) == 1 &&
           SSL_CTX_get0_chain_certs(from, &chain) == 1 &&
           SSL_set1_chain(to, chain) == 1 && SSL_set1_chain_cert_store(to, store) == 1 &&
           SSL_set1_verify_cert_store(to, store) == 1;
}

void vx_tls_keys_drop(SSL *ssl)
{
    EVP_PKEY *made = NULL;
    if (!ssl || SSL_get_tmp_key(ssl, &made) != 1) return;
    EVP_PKEY_set_type(made, EVP_PKEY_X25519); /* wipes and frees what was in it */
    EVP_PKEY_free(made);
}

void vx_tls_keys_return(SSL *ssl)
{
    if (!ssl) return;
    vx_tls_keys_drop(ssl);
    SSL_certs_clear(ssl);
    SSL_set_client_CA_list(ssl, NULL);
    SSL_set0_chain_cert_store(ssl, NULL);
    SSL_set0_verify_cert_store(ssl, NULL);
}
