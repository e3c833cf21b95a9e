"""Where the console script's commands go."""

from __future__ import annotations

import argparse
import os
from typing import Any

from attention_client._channel import Tls
from attention_client.backend import LOCAL, VARIABLE, AttentionBackend


def add_options(parser: argparse.ArgumentParser) -> None:
    """Who is called, and how; the variables are attention-client's, too."""
    parser.add_argument(
        "--server",
        default=os.environ.get(VARIABLE) or "127.0.0.1:8001",
        help=f"host:port, unix:/path, or {LOCAL}: this process [{VARIABLE}] "
        "(%(default)s)",
    )
    parser.add_argument(
        "--timeout",
        "--deadline",
        type=float,
        default=60.0,
        help="seconds (%(default)s)",
    )
    parser.add_argument(
        "--tls",
        action="store_true",
        help="encrypt, and check the server's certificate; implied by the next three",
    )
    for name, meaning in (
        ("tls-ca", "who signs the server's certificate, in PEM (the system's)"),
        ("tls-certificate", "this caller's certificate, in PEM"),
        ("tls-key", "its private key, in PEM"),
        ("token-file", "the token that tells the server who calls"),
    ):
        variable = f"ATTENTION_CLIENT_{name.upper().replace('-', '_')}"
        parser.add_argument(
            f"--{name}",
            metavar="FILE",
            default=os.environ.get(variable),
            help=f"{meaning} [{variable}]",
        )


def connect(options: argparse.Namespace) -> Any:
    """A Client; or the Engine of this process, which has no use for tls and tokens."""
    files = (options.tls_ca, options.tls_certificate, options.tls_key)
    if options.server == LOCAL:
        return AttentionBackend(LOCAL)
    token = None
    if options.token_file is not None:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.read().strip()
    return AttentionBackend(
        options.server,
        timeout=options.timeout,
        tls=Tls(*files) if options.tls or any(files) else False,
        token=token,
    )


def connect_server(options: argparse.Namespace) -> Any:
    """A Client: of what an engine of one command cannot have."""
    if options.server == LOCAL:
        raise ValueError(
            f"{LOCAL}: this command is about a server (expected --server host:port or "
            "unix:/path)"
        )
    return connect(options)
