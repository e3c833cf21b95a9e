"""Certificates for tests, by the program openssl."""

import subprocess


def openssl(folder, *arguments):
    """Runs it in a folder; raises where it fails."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)


P256 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
RSA4096 = ("rsa:4096",)  # a signature takes some 50 times as long


def make_certificates(folder, key=P256):
    """An authority (ca), and a server's and a caller's certificate that it signed; and an
    authority (other) that signed nobody. Each is NAME.pem, with NAME.key."""
    for name in ("ca", "other", "server", "caller"):
        signed = () if name in ("ca", "other") else ("-CA", "ca.pem", "-CAkey", "ca.key")
        openssl(
            folder,
            *("req", "-x509", "-newkey", *(key if name == "server" else P256)),
            *signed,
            *("-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
        )
    return folder


def server_flags(folder, mutual=True):
    flags = ["--tls-certificate", folder / "server.pem", "--tls-key", folder / "server.key"]
    return [*flags, "--tls-client-ca", folder / "ca.pem"] if mutual else flags
