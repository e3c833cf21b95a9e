"""The console script's sequences."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from attention_client._cli_connection import connect_server


def add_to(commands: Any) -> None:
    sequences = commands.add_parser(
        "sequences", help="keys and values that stay on the server"
    )
    verbs = sequences.add_subparsers(required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="name, label, keys, datatype and bytes")
    listed.add_argument("--label", help="of this label alone")
    listed.add_argument("--label-prefix", help="of labels that begin so")
    listed.set_defaults(run=_list_sequences)
    described = verbs.add_parser("describe", help="what one is, as JSON")
    described.add_argument("name")
    described.set_defaults(run=_describe_sequence)
    deleted = verbs.add_parser("delete", help="ends them")
    deleted.add_argument("names", nargs="+", metavar="name")
    deleted.set_defaults(run=_delete_sequences)
    exported = verbs.add_parser("export", help="into a file of the server's folder")
    exported.add_argument("name")
    exported.add_argument("file", help="a name without a path")
    exported.set_defaults(run=_export_sequence)
    imported = verbs.add_parser("import", help="from such a file; prints the name")
    imported.add_argument("file", help="a name without a path")
    imported.add_argument("--name", help="in place of one that the server makes")
    imported.add_argument("--label", default="", help="what list finds it by")
    imported.set_defaults(run=_import_sequence)


def _list_sequences(options: argparse.Namespace) -> None:
    wanted = {"label": options.label, "label_prefix": options.label_prefix}
    with connect_server(options) as client:
        for one in client.sequences(**wanted):
            print(
                f"{one.name}\t{one.label}\t{max(one.lengths)} keys\t"
                f"{one.form.datatype}\t{one.bytes} bytes"
            )


def _describe_sequence(options: argparse.Namespace) -> None:
    with connect_server(options) as client:
        described = client.open_sequence(options.name).describe()
    print(json.dumps(dataclasses.asdict(described), indent=2))


def _delete_sequences(options: argparse.Namespace) -> None:
    with connect_server(options) as client:
        print(f"{client.delete_sequences(options.names)} deleted")


def _export_sequence(options: argparse.Namespace) -> None:
    with connect_server(options) as client:
        size = client.open_sequence(options.name).export(options.file)
    print(f"{size} bytes")


def _import_sequence(options: argparse.Namespace) -> None:
    with connect_server(options) as client:
        made = client.import_sequence(
            options.file, name=options.name, label=options.label
        )
    print(made.name)
