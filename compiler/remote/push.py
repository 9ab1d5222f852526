"""Put a bundle on a phone: what changed, verified there, switched in one step.

In:  an opened bundle and a connected target.
Out: the path of the bundle there, always TARGET/bundle.
There, a bundle lies in .bundles/ID and `bundle` is a link to it; a new one is gathered in .incoming/ID, where files that did not
change are linked from the old one. A phone whose connection or battery dies in between keeps the old bundle, whole.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.bundle.folder import MANIFEST_NAME, Bundle
from ...runtime.errors import UserError
from ...runtime.storage.durable import sha256_of_file
from .readiness import Readiness, check_target
from .retry import Retry
from .target import Target
from .transfer import AGAIN, FileThere, Progress, Transfer, hashes_there

ID_LENGTH = 16
LINK = "bundle"
DATA_FOLDER = "data"


@dataclass(frozen=True)
class Pushed:
    """What a push did."""

    path: str
    """the bundle there"""
    readiness: Readiness
    sent: tuple[str, ...]
    """files that crossed the wire"""
    reused: tuple[str, ...]
    """files that were there already"""
    sent_bytes: int


def push_bundle(bundle: Bundle, target: Target, retry: Retry, progress: Progress, python: str | None = None) -> Pushed:
    """Make `bundle` the target's bundle. UserError says what is missing there, or that the way stays broken."""
    short = bundle.bundle_id[:ID_LENGTH]
    incoming, final = f"{target.folder}/.incoming/{short}", f"{target.folder}/.bundles/{short}"
    retry.until_done(lambda: _make_folders(target, incoming), AGAIN)
    complete = retry.until_done(lambda: _holds(bundle, target, final), AGAIN)
    missing = [] if complete else retry.until_done(lambda: _missing(bundle, target, incoming), AGAIN)
    needed = sum(bundle.files[name].n_bytes for name in missing)
    readiness = retry.until_done(lambda: check_target(target, bundle, needed, python), AGAIN)
    transfer = Transfer(target, retry, progress)
    for name in missing:
        record = bundle.files[name]
        transfer.send(FileThere(bundle.path(name), record.n_bytes, record.sha256), f"{incoming}/{name}")
    manifest = bundle.folder / MANIFEST_NAME
    if not complete:
        transfer.send(FileThere(manifest, manifest.stat().st_size, sha256_of_file(manifest)), f"{incoming}/{MANIFEST_NAME}")
    retry.until_done(lambda: _switch(bundle, target, incoming, final, readiness.python), AGAIN)
    return Pushed(f"{target.folder}/{LINK}", readiness, tuple(missing), tuple(sorted(set(bundle.files) - set(missing))), needed)


def push_files(files: Sequence[Path], target: Target, retry: Retry, progress: Progress) -> list[str]:
    """Put files of the user into TARGET/data; returns their paths as verbs there take them."""
    retry.until_done(lambda: target.run(f"mkdir -p {shlex.quote(f'{target.folder}/{DATA_FOLDER}')}"), AGAIN)
    transfer, names = Transfer(target, retry, progress), []
    for file in files:
        path = f"{DATA_FOLDER}/{file.name}"
        digest = sha256_of_file(file)
        there = retry.until_done(lambda: hashes_there(target, target.folder, [path]), AGAIN)  # noqa: B023 - called at once
        if there.get(path) != digest:
            transfer.send(FileThere(file, file.stat().st_size, digest), f"{target.folder}/{path}")
        names.append(path)
    return names


def _make_folders(target: Target, incoming: str) -> None:
    done = target.run(f"mkdir -p {shlex.quote(incoming)} {shlex.quote(target.folder)}/.bundles 2>&1 && [ -w {shlex.quote(incoming)} ]")
    if done.code:
        last = (done.text.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(str(target.address), f"the folder {target.folder} cannot be written there ({last})", remedy="name another folder")


def _hashes(bundle: Bundle) -> dict[str, str]:
    """Of every file, the manifest included."""
    return {**{name: record.sha256 for name, record in bundle.files.items()}, MANIFEST_NAME: sha256_of_file(bundle.folder / MANIFEST_NAME)}


def _holds(bundle: Bundle, target: Target, folder: str) -> bool:
    """Whether that folder there is this very bundle, undamaged."""
    ours = _hashes(bundle)
    return hashes_there(target, folder, sorted(ours)) == ours


def _missing(bundle: Bundle, target: Target, incoming: str) -> list[str]:
    """Names that have to be sent; what the target has in its current or half-sent bundle is linked into `incoming` first."""
    names = sorted(bundle.files)
    wanted = {name: bundle.files[name].sha256 for name in names}
    here = hashes_there(target, incoming, names)
    lacking = [name for name in names if here.get(name) != wanted[name]]
    there = hashes_there(target, f"{target.folder}/{LINK}", lacking) if lacking else {}
    for name in lacking:
        if there.get(name) != wanted[name]:
            continue
        source, copy = shlex.quote(f"{target.folder}/{LINK}/{name}"), shlex.quote(f"{incoming}/{name}")
        # cp where the storage has no hard links; a copy that was cut off is found by its hash at the next look
        if target.run(f"rm -f {copy}; ln {source} {copy} 2>/dev/null || cp {source} {copy}").code == 0:
            here[name] = wanted[name]
    return [name for name in names if here.get(name) != wanted[name]]


def _switch(bundle: Bundle, target: Target, incoming: str, final: str, python: str) -> None:
    """Check the gathered bundle as a whole, then make it the current one in a single rename."""
    gather = ""
    if not _holds(bundle, target, final):  # it is there when it was pushed before, or when an earlier answer was lost
        ours = _hashes(bundle)
        there = hashes_there(target, incoming, sorted(ours))
        wrong = sorted(name for name in ours if there.get(name) != ours[name])
        if wrong:
            raise UserError(str(target.address), f"{', '.join(wrong)} changed there while the bundle was sent", remedy=AGAIN)
        gather = GATHER.format(incoming=shlex.quote(incoming), final=shlex.quote(final), keep=" ".join(sorted(ours)))
    switch = SWITCH.format(short=bundle.bundle_id[:ID_LENGTH], python=shlex.quote(python))
    done = target.run(f"trap '' HUP\n{gather}cd {shlex.quote(target.folder)} || exit 1\n{switch}")
    if done.code:
        raise UserError(str(target.address), f"the bundle cannot be put in place there ({done.text.strip()[-200:]})", remedy="name another folder")


GATHER = """\
cd {incoming} || exit 1
for file in $(ls -A); do case " {keep} " in *" $file "*) ;; *) rm -rf "$file";; esac; done
cd / && rm -rf {final} && mv {incoming} {final} || exit 1
"""
"""Leftover pieces go; names in a bundle have no spaces and no wildcards."""
SWITCH = """\
if ln -s .bundles/{short} .link.$$ 2>/dev/null; then
  if [ -d bundle ] && [ ! -L bundle ]; then echo "bundle is a folder of its own there"; rm .link.$$; exit 1; fi
  {python} -c 'import os, sys; os.replace(sys.argv[1], "bundle")' .link.$$ || exit 1
else
  [ -d bundle ] && mv bundle .old.$$
  mv .bundles/{short} bundle || {{ [ -d .old.$$ ] && mv .old.$$ bundle; exit 1; }}
  rm -rf .old.$$
fi
printf %s {python} > .python
for run in runs/*/pid; do
  [ -f "$run" ] && kill -0 "$(cat "$run")" 2>/dev/null && exit 0
done
for other in .bundles/* .incoming/*; do
  [ "$other" = .bundles/{short} ] || rm -rf "$other"
done
exit 0"""
"""One rename makes the switch (Python's, because a plain mv would move the link into the folder it points to); a storage without links, such as an
SD card, gets two. Old bundles stay while a run that may use them is going on."""
