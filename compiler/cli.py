"""The desktop command: mft compile | run | inspect | demo.

In:  the words that were typed.
Out: the exit code: 0 done, 2 the user's mistake in one report without a traceback, 1 our fault; `run` passes on the runtime's.
The heavy imports are inside the verbs, so that --help is instant and a missing extra ends in a sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..runtime.errors import MftError, UserError

COMPILE_EXTRA = "pip install 'mobilefinetuner[compile]'"
DESCRIPTION = """\
Compile a language model into a bundle that fine-tunes itself on a phone.

  mft compile [KEY=VALUE ...]     make a bundle; the last line printed is its path
  mft run BUNDLE VERB ...         use the bundle on this machine (the same as: python3 BUNDLE/mft.pyz VERB ...)
  mft inspect BUNDLE              what is in a bundle
  mft push BUNDLE --to TARGET     send a bundle to a phone: adb[:SERIAL][:DIR], ssh://[user@]host[:port]/dir, or a folder
  mft on TARGET VERB ...          use the bundle on the phone, with its output here
  mft pull TARGET WHAT            bring a version's weights or a report from the phone
  mft lock NAME.lock.json ...     compile reference bundles and compare them with their checksums
  mft demo                        the whole way on a shop's conversations: compile, tune, merge, verify, ask

"mft VERB --help" says more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; every outcome that is not our fault ends in a sentence on stderr."""
    _never_fail_to_print()
    words = list(sys.argv[1:] if argv is None else argv)
    verbs = {"compile": _compile, "run": _run, "inspect": _inspect, "demo": _demo, "push": _push, "on": _on, "pull": _pull, "lock": _lock}
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(DESCRIPTION, end="")
            return 0 if words else 2
        if words[0] == "--version":
            return _print_version()
        if words[0] not in verbs:
            raise UserError("mft", f"{words[0]!r} is not a verb", ", ".join(verbs), "mft --help")
        code = verbs[words[0]](words[1:])
        sys.stdout.flush()
        return code
    except MftError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; nothing was written in place of an older bundle", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("hydra", "omegaconf", "yaml", "tvm", "gguf", "jinja2", "rich", "ziglang"):
            raise
        print(f"mft: the Python package {error.name} is not installed; try: {COMPILE_EXTRA}", file=sys.stderr)
        return 2


def _compile(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mft compile",
        description="Compile scenario x model x device into a bundle. The last line printed is the bundle's path.",
        epilog="Examples: mft compile scenario=education device=pixel_8 train.rank=8 out=my-bundle. All keys: docs/configuration.md.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="a setting, or a group's file: scenario=education; the later of two holds")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="a folder of your own laid out like configs/; its files win")
    parser.add_argument("--show", "--cfg", action="store_true", help="print the resolved recipe as YAML and compile nothing")
    options = parser.parse_intermixed_args(words)
    from .recipe.load import load_recipe, recipe_as_yaml

    recipe = load_recipe(options.overrides, options.config_dir)
    if options.show:
        print(recipe_as_yaml(recipe, sys.stdout.encoding or "utf-8"), end="")
        return 0
    from .pipeline import compile_bundle

    print(compile_bundle(recipe, _progress))
    return 0


def _run(words: list[str]) -> int:
    """Become the bundle's own runtime: signals and the exit code are then its own, without a process in between."""
    if not words or words[0] in ("-h", "--help"):
        print("usage: mft run BUNDLE VERB ...\n\nRuns a verb of the bundle's runtime on this machine; `mft run BUNDLE --help` lists them.")
        return 0 if words else 2
    from ..runtime.bundle.folder import Bundle

    bundle = Bundle.open_manifest(words[0])
    bundle.verify_file("mft.pyz")  # the runtime verifies the other files, and nobody else verifies the runtime
    command = [sys.executable, str(bundle.path("mft.pyz")), *words[1:]]
    sys.stdout.flush()
    os.execv(command[0], command)


def _inspect(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="mft inspect", description="Verify a bundle and say what is in it.")
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(words)
    from rich.console import Console

    from .bundle.inspect import describe_bundle, print_bundle

    description = describe_bundle(options.bundle)
    if options.json:
        print(json.dumps(description, indent=1, sort_keys=True))
    else:
        console = Console(highlight=False)
        with console.capture() as page:  # Console itself would end the process when the reader of a pipe has gone
            print_bundle(description, console)
        print(page.get(), end="")
    return 0


def _demo(words: list[str]) -> int:
    from .demo import main as demo

    return demo(words)


def _push(words: list[str]) -> int:
    from .remote.cli import push_command

    return push_command(words)


def _on(words: list[str]) -> int:
    from .remote.cli import on_command

    return on_command(words)


def _pull(words: list[str]) -> int:
    from .remote.cli import pull_command

    return pull_command(words)


def _lock(words: list[str]) -> int:
    from .lock import main as lock

    return lock(words, _progress)


def _progress(text: str) -> None:
    """One line of a running compilation; on stderr, because stdout ends with the bundle's path."""
    print(text, file=sys.stderr, flush=True)


def _print_version() -> int:
    from ..runtime import __version__

    print(f"mobilefinetuner {__version__}")
    return 0


def _never_fail_to_print() -> None:
    """A sign that the terminal's encoding lacks is shown escaped instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
