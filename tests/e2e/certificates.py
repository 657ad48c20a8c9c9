# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by the program openssl: authorities, and what they sign."""
import dataclasses
import pathlib
import subprocess

CONFIG = """
[ca]
default_ca = this
[this]
dir = {folder}
database = $dir/index
new_certs_dir = $dir
serial = $dir/serial
crlnumber = $dir/crlnumber
certificate = $dir/ca.pem
private_key = $dir/ca.key
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
organizationName = optional
[req]
distinguished_name = nothing
prompt = no
[nothing]
CN = nothing
"""
LONG_AGO, AGO = "20200101000000Z", "20200601000000Z"


def run(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its key, as paths."""
    cert: pathlib.Path
    key: pathlib.Path


class Authority:
    """ca.pem, and what it signs; `kind` of keys: ec or rsa."""

    def __init__(self, folder, name="test authority", kind="ec"):
        self.folder, self.kind, self.count = pathlib.Path(folder), kind, 0
        self.folder.mkdir(parents=True)
        (self.folder / "index").touch()
        (self.folder / "serial").write_text("1000\n")
        (self.folder / "crlnumber").write_text("01\n")
        self.config = self.folder / "config"
        self.config.write_text(CONFIG.format(folder=self.folder))
        self.cert = self.folder / "ca.pem"
        run("req", "-x509", *self._key(self.folder / "ca.key"), "-out", self.cert, "-days", "30",
            "-subj", f"/CN={name}", "-config", self.config,
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def _key(self, path):
        kind = (["-newkey", "rsa:2048"] if self.kind == "rsa"
                else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        return [*kind, "-nodes", "-keyout", path]

    def sign(self, name, names="DNS:localhost,IP:127.0.0.1", subject=None, expired=False):
        """A Pair in files of its own."""
        self.count += 1
        stem = self.folder / f"{self.count}-{name.replace(' ', '-')}"
        pair = Pair(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        request = stem.with_suffix(".csr")
        run("req", *self._key(pair.key), "-out", request, "-subj", subject or f"/CN={name}",
            "-config", self.config, "-addext", f"subjectAltName={names}")
        times = ["-startdate", LONG_AGO, "-enddate", AGO] if expired else []
        run("ca", "-batch", "-notext", "-preserveDN", "-config", self.config, "-in", request,
            "-out", pair.cert, *times)
        return pair

    def revoke(self, pair):
        run("ca", "-config", self.config, "-revoke", pair.cert)

    def crl(self, path):
        """Writes the list of what is revoked until now, and returns its path."""
        made = pathlib.Path(f"{path}.new")
        run("ca", "-config", self.config, "-gencrl", "-out", made)
        made.rename(path)
        return path
