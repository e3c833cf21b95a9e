"""Certificates for tests, by the program openssl."""

import subprocess


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)


def make_certificates(folder):
    """An authority (ca), and a server's and a caller's certificate that it signed; and an
    authority (other) that signed nobody. Each is NAME.pem, with NAME.key."""
    for name in ("ca", "other", "server", "caller"):
        signed = () if name in ("ca", "other") else ("-CA", "ca.pem", "-CAkey", "ca.key")
        openssl(
            folder,
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *signed,
            *("-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
        )
    return folder


def server_flags(folder, mutual=True):
    flags = ["--tls-certificate", folder / "server.pem", "--tls-key", folder / "server.key"]
    return [*flags, "--tls-client-ca", folder / "ca.pem"] if mutual else flags
