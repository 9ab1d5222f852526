"""Make runtime/measures/text/han_variants.txt: which Chinese characters count as one when texts are compared.

    python tests/oracles/han_variants.py DICTIONARY_FOLDER

The folder is data/dictionary of the source archive of OpenCC 1.4.2 (PyPI `opencc`, Apache-2.0). Only characters of the basic plane
are taken, one to one. OpenCC chooses by phrase where one traditional character has two simplified forms; a comparison folds both sides and needs
only one choice, so the first of OpenCC's candidates is taken.
"""

from __future__ import annotations

import sys
from pathlib import Path

TARGET = Path(__file__).parents[2] / "runtime" / "measures" / "text" / "han_variants.txt"
HEADER = """\
# Characters that count as one when Chinese texts are compared: each group begins with the simplified form.
# Taken from OpenCC 1.4.2, https://github.com/BYVoid/OpenCC, data/dictionary: TSCharacters, STCharacters, TWVariants, HKVariants.
# Copyright the OpenCC authors, Apache License 2.0. Changed: single characters of the basic plane only, first candidate only, regrouped;
# made by tests/oracles/han_variants.py.
"""
EVERYDAY = {"瞭": "了", "覆": "复"}
"""OpenCC leaves these to its phrases; 瞭解 = 了解 and 回覆 = 回复 are too common to miss"""
NO_VARIANTS = {"么"}
"""TWVariants gives it for 幺, but in 什么 it is 麼"""
LINE_CHARACTERS = 70


def read(path: Path) -> dict[str, list[str]]:
    lines = (line for line in path.read_text(encoding="utf-8").split("\n") if line.strip() and not line.startswith("#"))
    rows = (line.split("\t") for line in lines)
    return {key: [v for v in values.split(" ") if is_basic(v)] for key, values in rows if is_basic(key)}


def is_basic(character: str) -> bool:
    return len(character) == 1 and ord(character) < 0x10000


def variants(folder: Path) -> dict[str, str]:
    """character → the one it is folded to; no target is folded further"""
    table: dict[str, str] = {}

    def target(character: str) -> str:
        while character in table:
            character = table[character]
        return character

    def join(character: str, other: str) -> None:
        if target(character) != target(other):
            table[target(character)] = target(other)

    for character, candidates in read(folder / "TSCharacters.txt").items():
        if candidates and candidates[0] != character:
            join(character, candidates[0])
    for character, other in EVERYDAY.items():
        join(character, other)
    for character, candidates in read(folder / "STCharacters.txt").items():
        if len(candidates) == 1 and character != candidates[0]:
            join(character, candidates[0])
    for name in ("TWVariants.txt", "HKVariants.txt"):
        for character, candidates in read(folder / name).items():
            for variant in set(candidates) - NO_VARIANTS:
                join(variant, character)
    return {character: target(character) for character in table}


def main(folder: Path) -> None:
    groups: dict[str, str] = {}
    for character, first in sorted(variants(folder).items()):
        groups[first] = groups.get(first, first) + character
    lines = [""]
    for group in sorted(groups.values()):
        if len(lines[-1]) + len(group) > LINE_CHARACTERS:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + group
    TARGET.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
