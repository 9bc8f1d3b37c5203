"""The `weft` command. Each subcommand is a function that takes the parsed arguments and returns the exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def show_info(arguments: argparse.Namespace) -> int:
    """`weft info`: what Weft found on this machine."""
    from weft.runtime import info

    found = info.info()
    print(json.dumps(found, indent=2) if arguments.json else info.format_info(found))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    from weft import __version__

    top = argparse.ArgumentParser(prog="weft", description="Deep learning on the CPUs you already have.")
    top.add_argument("--version", action="version", version=f"weft {__version__}")
    commands = top.add_subparsers(title="commands", metavar="command", required=True)

    command = commands.add_parser("info", help="versions, processor, threads, libraries, memory")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=show_info)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    arguments = parser().parse_args(argv)
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
