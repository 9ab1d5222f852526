"""The command line's side of ingest: what a person may say about their files.

In:  the words that were typed.
Out: IngestOptions. The verbs `ingest` and `tune` share these arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from .files.encoding import FORCED
from .ingest import IngestOptions
from .readers import chat_formats, choices, formats_with
from .readers.format import ReadOptions
from .readers.tabular import OWN_NAMES
from .readers.whatsapp import DATE_ORDERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments about how the files are read."""
    parser.add_argument(
        "--format", metavar="NAME", help=f"read every file as this format, not as the one that its content shows: {', '.join(choices())}"
    )
    parser.add_argument("--encoding", metavar="NAME", help=f"the encoding of every file, if its bytes do not show it: {', '.join(FORCED)}")
    parser.add_argument(
        "--me",
        metavar="NAME",
        action="append",
        default=[],
        help=f"chat logs ({', '.join(chat_formats())}): whose messages are learned; again for another spelling; without it the speakers are listed",
    )
    parser.add_argument(
        "--column",
        metavar="NAME=COLUMN",
        action="append",
        default=[],
        help=f"tables ({', '.join(formats_with('columns'))}): which column is what, once for each; names: {', '.join(OWN_NAMES)}",
    )
    parser.add_argument(
        "--date-order",
        metavar="ORDER",
        help=f"{', '.join(formats_with('date_order'))}: {', '.join(DATE_ORDERS)}, if the chat itself does not show it",
    )
    parser.add_argument(
        "--max-drop-share", type=float, metavar="SHARE", help="continue even if up to this share of the records is dropped (1: any loss)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page with counts, lengths and examples; it holds excerpts of your texts"
    )


def options_from(
    arguments: argparse.Namespace,
    model: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> IngestOptions:
    """UserError for a value that is not possible."""
    share = arguments.max_drop_share
    if share is not None and not 0 <= share <= 1:
        raise UserError("--max-drop-share", f"{share} is not a share", allowed="0 to 1")
    read = ReadOptions(arguments.format, arguments.encoding, columns_of(arguments.column), tuple(arguments.me), arguments.date_order)
    return IngestOptions(read, share, dict(model or {}), dict(train or {}), progress, arguments.report)


def columns_of(pairs: Iterable[str]) -> dict[str, str]:
    """["user=Question", "assistant=Answer"] as a mapping."""
    columns: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or not name.strip() or not column.strip():
            raise UserError(
                "--column",
                f"{pair!r} is not NAME=COLUMN",
                allowed=f"names: {', '.join(OWN_NAMES)}",
                remedy="--column user=Question --column assistant=Answer",
            )
        columns[name.strip()] = column.strip()
    return columns
