"""The `weft` command line; the commands are implemented in `weft.commands`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from . import __version__, settings
from .runtime import info


def show_info(arguments: argparse.Namespace) -> int:
    """`weft info`: print versions, processor, threads and libraries; with --dedupe, link the copies of oneDNN."""
    if arguments.dedupe:
        from .backends.onednn.copies import link_copies

        try:
            linked, freed = link_copies()
        except OSError as error:
            print(f"weft info: the copies of oneDNN cannot be replaced by links: {error}", file=sys.stderr)
            return 1
        for path in linked:
            print(f"linked {path}")
        print(f"{len(linked)} copies of oneDNN replaced by links, {freed:,} bytes freed")
        return 0
    print(json.dumps(info.info(), indent=2) if arguments.json else info.format_info())
    return 0


def command(name: str) -> Callable[[argparse.Namespace], int]:
    """The `run` function of `weft.commands.<name>`, imported when it is called."""

    def run(arguments: argparse.Namespace) -> int:
        status: int = importlib.import_module(f"weft.commands.{name}").run(arguments)
        return status

    return run


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="weft", description="Deep learning on the CPUs you already have.")
    top.add_argument("--version", action="version", version=f"weft {__version__}")
    commands = top.add_subparsers(title="commands", metavar="command", required=True)

    train = commands.add_parser("train", help="train a model: digits, cifar-like, lm, or a configuration file")
    train.add_argument("target", help="a recipe (digits, cifar-like, lm) or the path of a TOML file")
    train.add_argument(
        "--out", metavar="DIR", help="directory of the run (runs/NAME); an unfinished run in it is resumed"
    )
    train.add_argument("--epochs", type=_positive)
    train.add_argument("--batch-size", type=_positive, metavar="N")
    train.add_argument("--lr", type=float, help="learning rate")
    train.add_argument("--seed", type=int)
    train.add_argument("--loaders", type=_natural, metavar="N", help="processes that load data")
    _add_run_options(train)
    train.add_argument("--eager", action="store_true", help="do not compile the training step")
    train.add_argument(
        "--show", action="store_true", help="print the configuration, to copy and change, and do nothing"
    )
    train.set_defaults(run=command("train"))

    run = commands.add_parser("run", help="run a script on several workers that train one model together")
    _add_run_options(run)
    run.add_argument("script", help="a Python file; with -m the name of a module")
    run.add_argument("-m", dest="module", action="store_true", help="`script` is the name of a module")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")
    run.set_defaults(run=command("run"))

    status = commands.add_parser("status", help="what the runs on several workers are doing")
    status.add_argument(
        "target", nargs="?", metavar="RUN", help="its name, a process number, or a directory of checkpoints"
    )
    status.add_argument("--watch", action="store_true", help="repeat every second, until Ctrl-C")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=command("status"))

    scale = commands.add_parser("scale", help="change the number of workers of a run while it goes on")
    scale.add_argument("target", metavar="RUN", help="its name, a process number, or a directory of checkpoints")
    scale.add_argument("workers", type=_positive, metavar="N", help="how many, within the limits of its --workers A..B")
    scale.set_defaults(run=command("scale"))

    cluster = commands.add_parser("cluster", help="measure what workers would run on, and say what is wrong with it")
    actions = cluster.add_subparsers(title="actions", metavar="action", required=True)
    check = actions.add_parser("check", help="latency, bandwidth, compute, start of workers; and what is wrong")
    _add_cluster_options(check)
    check.add_argument("--workers", type=_workers, metavar="N", help="how many workers (the processors)")
    check.add_argument("--json", metavar="FILE", help="write what was measured to a file, as JSON")
    check.set_defaults(run=command("cluster"))

    predict = commands.add_parser("predict", help="use a trained model")
    predict.add_argument("checkpoint", help="the directory of a run or of a checkpoint")
    predict.add_argument("file", nargs="?", help="an image or .npy file; for language models a text to continue")
    predict.add_argument("--index", type=int, metavar="N", help="sample N of the test data")
    predict.add_argument("--prompt", metavar="TEXT", help="a text to continue")
    predict.add_argument("--length", type=_natural, default=300, metavar="N", help="characters to add (300)")
    predict.add_argument("--temperature", type=_number, default=0.8, help="0 always takes the likeliest (0.8)")
    predict.add_argument("--top-k", type=_positive, metavar="K", help="draw from the K likeliest only")
    predict.add_argument("--seed", type=int)
    predict.set_defaults(run=command("predict"))

    summary = commands.add_parser("summary", help="a table of a model's layers, parameters and FLOPs")
    summary.add_argument("model", help="a model's name, a recipe, a configuration file or the directory of a run")
    summary.add_argument("--input", metavar="SIZES", help="the shape of an input, such as 1,3,224,224")
    summary.add_argument("--depth", type=_positive, metavar="N", help="levels of modules to show (all)")
    summary.set_defaults(run=command("summary"))

    bench = commands.add_parser("bench", help="run benchmarks of a checkout, or say what they measure")
    bench.add_argument("name", nargs="?", help="which one; without a name they are listed")
    bench.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="arguments of the benchmark")
    bench.set_defaults(run=command("bench"))

    about = commands.add_parser("info", help="versions, processor, threads, libraries, memory")
    about.add_argument("--json", action="store_true", help="print JSON")
    about.add_argument(
        "--dedupe", action="store_true", help="replace the copies of oneDNN that pip stored by hard links"
    )
    about.set_defaults(run=show_info)
    return top


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of commands that may start workers."""
    parser.add_argument(
        "--workers", type=_workers, metavar="N", help="train with N worker processes; 2..8 is elastic between 2 and 8"
    )
    _add_cluster_options(parser)
    parser.add_argument(
        "--shards",
        type=_positive,
        default=8,
        metavar="N",
        help="into how many shards a batch is cut (8); part of the result",
    )
    parser.add_argument(
        "--events", metavar="FILE", help="append the events of the run to FILE (beside the checkpoints)"
    )
    parser.add_argument(
        "--check-every",
        type=_positive,
        default=0,
        metavar="K",
        help="workers check each other's gradients and weights every K steps (never)",
    )
    parser.add_argument(
        "--memory",
        choices=("full", "lean"),
        default="full",
        help="lean keeps the weights once; a death during an update then restarts the run from its last checkpoint",
    )
    parser.add_argument("--trace", metavar="FILE", help="write spans of all tasks to FILE, for Perfetto")
    parser.add_argument("--trace-steps", type=_steps, metavar="A..B", help="which steps --trace records (10..29)")


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """The options that say where workers run."""
    parser.add_argument(
        "--engine", choices=["local", "ray"], help="what starts the workers (local; ray if there is an --address)"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="a Ray cluster that runs already")
    parser.add_argument("--hosts", type=_positive, default=1, metavar="N", help="spread the workers over N hosts (1)")
    parser.add_argument(
        "--threads", type=_positive, metavar="N", help="threads of each worker (the processors, divided)"
    )


def _steps(text: str) -> tuple[int, int]:
    """`10..29`, or `10`: the first step and the last."""
    first, dots, last = text.partition("..")
    low = _positive(first)
    high = _positive(last) if dots else low
    if high < low:
        raise argparse.ArgumentTypeError(f"the first step of {text!r} must not come after the last.")
    return low, high


def _workers(text: str) -> tuple[int, int]:
    """`4`, or `2..8`: the least and the most."""
    least, dots, most = text.partition("..")
    low = _positive(least)
    high = _positive(most) if dots else low
    if high < low:
        raise argparse.ArgumentTypeError(f"the first number of {text!r} must not be above the second.")
    if high > 255:
        raise argparse.ArgumentTypeError(f"must be at most 255. Got {high}.")
    return low, high


def _positive(text: str) -> int:
    value = _natural(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1. Got {value}.")
    return value


def _natural(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an integer. Got {text!r}.") from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative. Got {value}.")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number. Got {text!r}.") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 0. Got {text}.")
    return value


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the source line of Weft that issued it."""
    print(f"weft: {message}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    arguments = parser().parse_args(argv)
    from .commands.config import ConfigError
    from .commands.errors import CommandError
    from .io import CheckpointError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # `weft … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (CommandError, ConfigError, CheckpointError, OSError, FloatingPointError) as error:
        # A user error: print one line instead of a traceback, which WEFT_DEBUG shows.
        if settings.DEBUG():
            raise
        print(f"weft: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("weft: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
