"""Which base-ability questions a bundle gets: those of its scenario or the shared ones, and only those that it can score."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from mobilefinetuner.compiler import pipeline
from mobilefinetuner.compiler.bundle import ability_questions
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.runtime.bundle.chat_format import ChatFormat
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.verify.ability import encode_choice, load_questions

from tests.support.tiny_bundle import ROOT

SHARED = Path(str(files("mobilefinetuner.templates"))) / ability_questions.FILE_NAME


@pytest.fixture
def tokenizer(tiny_bundle_path: Path) -> Tokenizer:
    return Tokenizer.load(tiny_bundle_path / "tokenizer.json")


@pytest.fixture
def chat_document(tiny_bundle_path: Path) -> dict:
    return json.loads((tiny_bundle_path / "scenario.json").read_text(encoding="utf-8"))["chat"]


def bundled(tiny_bundle_path: Path, chat_document: dict, *overrides: str) -> tuple[dict, list[str]]:
    """The template files of a recipe and what was said about them."""
    recipe = load_recipe(["scenario=customer_service", "model=smollm2_135m", "device=host", *overrides])
    said: list[str] = []
    return pipeline._template_files(recipe, (tiny_bundle_path / "tokenizer.json").read_bytes(), chat_document, said.append), said


def test_questions_that_fit_the_longest_bucket_are_kept_as_they_are_and_the_others_are_named(tokenizer, chat_document, tmp_path):
    chat, shared = ChatFormat.from_dict(chat_document), load_questions(SHARED)
    lengths = {p.id: max(len(encode_choice(tokenizer, chat, p, c).token_ids) for c in p.choices) for p in shared}
    longest = sorted(lengths.values())[len(lengths) // 2]
    questions = ability_questions.bundled_questions(SHARED, tokenizer, chat, longest)
    (tmp_path / "kept.jsonl").write_bytes(questions.content)
    assert load_questions(tmp_path / "kept.jsonl") == tuple(p for p in shared if lengths[p.id] <= longest)
    assert set(questions.left_out) == {name for name, length in lengths.items() if length > longest} != set()


def test_a_bundle_without_a_question_that_fits_has_no_question_file_and_says_so(tiny_bundle_path, chat_document):
    found, said = bundled(tiny_bundle_path, chat_document, "train.buckets=[1x32]", "scenario.window_tokens=32")
    assert ability_questions.FILE_NAME not in found and "84 base-ability questions" in said[0]


def test_every_scenario_gets_the_shared_questions_unless_its_folder_has_its_own(tiny_bundle_path, chat_document, tmp_path):
    buckets = "train.buckets=[1x512]"
    found, said = bundled(tiny_bundle_path, chat_document, buckets)
    assert [json.loads(line) for line in found[ability_questions.FILE_NAME].splitlines()] == [
        json.loads(line) for line in SHARED.read_bytes().splitlines()
    ]
    assert said == []
    own = shutil.copytree(ROOT / "templates" / "customer_service", tmp_path / "own")
    first = SHARED.read_text(encoding="utf-8").split("\n")[0]
    (own / ability_questions.FILE_NAME).write_text(first, encoding="utf-8")
    found, _ = bundled(tiny_bundle_path, chat_document, buckets, f'scenario.template="{own}"')
    assert json.loads(found[ability_questions.FILE_NAME]) == json.loads(first)


def test_a_bad_row_ends_the_compilation_with_its_place(tokenizer, chat_document, tmp_path):
    (tmp_path / "own.jsonl").write_text('{"id": "a"}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"own\.jsonl:1.*lacks the key 'choices'"):
        ability_questions.bundled_questions(tmp_path / "own.jsonl", tokenizer, ChatFormat.from_dict(chat_document), 64)
