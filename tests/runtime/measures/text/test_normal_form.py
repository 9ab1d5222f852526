"""One spelling for what means the same: case, width, Chinese, digits, quotes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime import measures
from mobilefinetuner.runtime.measures.text.normal_form import fold, han_variants


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("ＡＢＣ１２３", "abc123"),
        ("Ｅ１９", "e19"),
        ("請帶上藍卡", "请带上蓝卡"),
        ("營業時間：週二", "营业时间:周二"),
        ("臺灣颱風檯面", "台湾台风台面"),
        ("裏面裡面", "里面里面"),
        ("著名", "着名"),
        ("瞭解、回覆", "了解、回复"),
        ("衛生衞生", "卫生卫生"),
        ("٤٧ يومًا", "47 يوما"),
        ("४७", "47"),
        ("أهلاً", "اهلا"),
        ("Ещё", "еще"),
        ("“Hi”", '"hi"'),
        ("it’s", "it's"),
        ("5–7", "5-7"),
        ("₅", "5"),
        ("STRASSE", "straße"),
        ("nai\u0308ve", "naïve"),
        ("so\u00adft", "soft"),
        ("👍🏽", "👍"),
        ("❤\ufe0f", "❤"),
        ("ｶﾞ", "ガ"),
        ("￥40", "¥40"),
    ],
    ids=lambda text: text.encode("unicode_escape").decode()[:40],
)
def test_texts_that_mean_the_same_fold_to_one(a: str, b: str) -> None:
    assert fold(a) == fold(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [("café", "cafe"), ("schön", "schon"), ("1½", "11/2"), ("10²", "102"), ("土", "士"), ("計畫", "计划")],
    ids=["accent", "umlaut", "fraction", "raised", "similar", "by phrase only"],
)
def test_texts_that_mean_something_else_stay_apart(a: str, b: str) -> None:
    assert fold(a) != fold(b)


@given(st.text())
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_no_simplified_character_is_folded_further() -> None:
    variants = han_variants()
    assert len(variants) > 2500 and not set(variants) & set(variants.values())
    assert all(len(character) == 1 for pair in variants.items() for character in pair)


def test_the_table_is_read_from_inside_a_zip_archive_too(tmp_path: Path) -> None:
    """The runtime travels as one archive."""
    folder = Path(measures.__file__).parent
    archive = tmp_path / "mft.pyz"
    with ZipFile(archive, "w") as packed:
        for path in folder.rglob("*"):
            if path.is_file():
                packed.write(path, f"measures/{path.relative_to(folder)}")
    program = "import sys; sys.path.insert(0, sys.argv[1]); from measures.text.normal_form import fold; sys.exit(fold('藍') != '蓝')"
    assert subprocess.run([sys.executable, "-c", program, str(archive)], cwd=tmp_path, check=False).returncode == 0
