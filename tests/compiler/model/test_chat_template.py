"""Chat templates as segments: whatever the segments write, Jinja writes too, and what they cannot say is refused.

The references are Jinja itself and, where installed, transformers' own rendering.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.compiler.model.chat_template import compile_chat_format, prove
from mobilefinetuner.compiler.model.jinja_template import JinjaTemplate, TemplateRefusal
from mobilefinetuner.compiler.model.proof_conversations import proof_conversations
from mobilefinetuner.compiler.model.tokenizer_json import control_tokens, tokenizer_json
from mobilefinetuner.runtime.bundle.chat_format import ChatFormat
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.message import Message

from tests.support.tiny_vocabulary import tiny_metadata

CASES = Path(__file__).parents[2] / "cases" / "chat_templates"
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MODELS = {
    "chatml_default_system": dict(control=CHATML, eos_token_id=2, pre="qwen2"),
    "chatml_thinking": dict(control=CHATML, user_defined=("<think>", "</think>"), eos_token_id=2, pre="qwen2"),
    "system_in_first_user": dict(
        control=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"), bos_token_id=2, eos_token_id=1, add_bos_token=True
    ),
    "headers_with_date": dict(
        control=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), bos_token_id=0, eos_token_id=3, pre="llama-bpe"
    ),
    "instruction_brackets": dict(control=("<unk>", "<s>", "</s>"), bos_token_id=1, eos_token_id=2, add_bos_token=True),
    "no_system": dict(control=("<s>", "</s>", "<|user|>", "<|assistant|>"), bos_token_id=0, eos_token_id=1, add_bos_token=True),
}


def metadata_of(name: str) -> dict:
    return tiny_metadata(chat_template=(CASES / f"{name}.jinja").read_text(encoding="utf-8"), **MODELS[name])


def with_template(source: str) -> dict:
    return tiny_metadata(control=CHATML, eos_token_id=2, chat_template=source)


def compiled(metadata: dict) -> tuple[ChatFormat, Tokenizer]:
    tokenizer = Tokenizer.from_json(tokenizer_json(metadata, "m"))
    return compile_chat_format(metadata, tokenizer, "m.gguf"), tokenizer


def jinja(metadata: dict) -> JinjaTemplate:
    tokens = metadata["tokenizer.ggml.tokens"]
    names = {f"{name}_token": metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    return JinjaTemplate(metadata["tokenizer.chat_template"], {k: tokens[v] for k, v in names.items() if v is not None}, "m")


def messages(*turns: tuple[str, str]) -> list[Message]:
    return [Message(role, text) for role, text in turns]


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    metadata = GgufFile.open(smollm2_path).metadata
    return metadata, *compiled(metadata)


DIALOGUE = (("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: "think>" not in text)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXT, min_size=3, max_size=6), system=st.none() | TEXT, generate=st.booleans())
def test_segments_and_jinja_write_the_same_text(name, texts, system, generate):
    chat, template = COMPILED[name]
    turns = [(("user", "assistant")[index % 2], text) for index, text in enumerate(texts)]
    if generate and len(turns) % 2 == 0:
        turns = turns[:-1]
    if system is not None and chat.supports_system:
        turns = [("system", system), *turns]
    generate = generate and turns[-1][0] == "user"
    assert chat.render(messages(*turns), None, generate).text == template.render(turns, generate)


COMPILED = {name: (compiled(metadata_of(name))[0], jinja(metadata_of(name))) for name in MODELS}


def test_smollm2s_own_template_compiles_with_its_default_system_text(smollm2):
    _, chat, _ = smollm2
    assert chat.default_system == "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert chat.assistant_end == "<|im_end|>"
    assert chat.stop_token_ids == (0, 2)
    assert chat.bos_token_id is None


def test_the_scenarios_system_text_takes_the_place_of_the_templates(smollm2):
    _, chat, _ = smollm2
    text = chat.render(messages(("user", "hi")), "You sell linen.", True).text
    assert text == "<|im_start|>system\nYou sell linen.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    own = chat.render(messages(("system", "Mine."), ("user", "hi")), "You sell linen.").text
    assert "Mine." in own and "linen" not in own


def test_labels_are_every_assistant_turn_with_its_end_token_and_nothing_else(smollm2):
    _, chat, tokenizer = smollm2
    encoded = chat.encode(tokenizer, messages(("user", "hi"), ("assistant", "你好 😀 42"), ("user", "x"), ("assistant", "")))
    learned = encoded.token_ids[encoded.label_mask == 1]
    assert tokenizer.decode(learned) == "你好 😀 42<|im_end|><|im_end|>"
    assert tokenizer.decode(encoded.token_ids).endswith("<|im_end|>\n")
    assert encoded.label_mask[-1] == 0
    assert encoded.token_ids.dtype.name == "int32" and encoded.label_mask.dtype.name == "uint8"


def test_only_the_named_turns_are_learned_and_a_default_system_does_not_shift_them(smollm2):
    _, chat, tokenizer = smollm2
    for system in (None, "S"):
        encoded = chat.encode(tokenizer, messages(*DIALOGUE), system, label_turns={3})
        assert tokenizer.decode(encoded.token_ids[encoded.label_mask == 1]) == "four<|im_end|>"


def test_a_token_that_grew_together_with_the_prompt_is_not_learned(smollm2):
    """The newline before the answer and the answer's own first one become a single token here."""
    _, chat, tokenizer = smollm2
    encoded = chat.encode(tokenizer, messages(("user", "hi"), ("assistant", "\n\nyes")))
    assert "\n\n" in [tokenizer.decode([index]) for index in encoded.token_ids]
    assert tokenizer.decode(encoded.token_ids[encoded.label_mask == 1]) == "\nyes<|im_end|>"


def test_what_asks_for_an_answer_is_a_prefix_of_what_was_learned(smollm2):
    _, chat, tokenizer = smollm2
    asked = chat.encode(tokenizer, messages(("user", "hi")), None, True).token_ids.tolist()
    learned = chat.encode(tokenizer, messages(("user", "hi"), ("assistant", "Hello"))).token_ids.tolist()
    assert learned[: len(asked)] == asked


@pytest.mark.parametrize("name", MODELS)
def test_a_format_survives_json(name):
    chat = COMPILED[name][0]
    assert ChatFormat.from_dict(json.loads(json.dumps(chat.to_dict()))) == chat


@pytest.mark.parametrize(
    ("name", "rules", "end", "system"),
    [
        ("chatml_default_system", {"user": "keep", "assistant": "keep"}, "<|im_end|>", "You are a helpful assistant."),
        ("chatml_thinking", {"assistant": "keep", "last_assistant": "lstrip_newlines"}, "<|im_end|>", None),
        ("system_in_first_user", {"system": "keep", "user": "strip", "assistant": "strip"}, "<end_of_turn>", None),
        ("headers_with_date", {"system": "strip", "user": "strip"}, "<|eot_id|>", ""),
        ("instruction_brackets", {"system": "keep", "user": "strip", "assistant": "strip"}, " </s>", None),
        ("no_system", {"user": "keep"}, "</s>", None),
    ],
)
def test_the_ways_of_each_family_are_recorded(name, rules, end, system):
    chat = COMPILED[name][0]
    assert {slot: chat.text_rules[slot] for slot in rules} == rules
    assert chat.assistant_end == end
    assert chat.default_system == system


def test_a_thinking_model_is_asked_the_way_its_last_answer_was_learned():
    chat = COMPILED["chatml_thinking"][0]
    assert chat.between["user"]["generate"] == chat.between["user"]["last_assistant"]
    assert "<think>" not in chat.between["user"]["assistant"]


def test_a_text_that_the_template_looks_for_is_refused_instead_of_rendered_otherwise():
    chat, template = COMPILED["chatml_thinking"]
    assert chat.reserved_texts == ("</think>",)
    turns = [("user", "q"), ("assistant", "<think>hm</think>yes")]
    assert "hm\n</think>" in template.render(turns, False)
    with pytest.raises(UserError, match="turn 2: contains '</think>'"):
        chat.render(messages(*turns))
    assert all(COMPILED[name][0].reserved_texts == () for name in MODELS if name != "chatml_thinking")


def test_todays_date_is_pinned_so_that_a_bundle_does_not_depend_on_the_day():
    chat = COMPILED["headers_with_date"][0]
    assert chat.pinned_date == "2024-07-26"
    assert "Today: 26 Jul 2024\n" in chat.render(messages(*DIALOGUE)).text
    assert COMPILED["no_system"][0].pinned_date is None


@pytest.mark.parametrize("name", ["system_in_first_user", "headers_with_date", "instruction_brackets", "no_system"])
def test_there_is_one_bos_and_never_two(name):
    metadata = metadata_of(name)
    chat, tokenizer = compiled(metadata)
    ids = chat.encode(tokenizer, messages(("user", "hi"), ("assistant", "yes"))).token_ids.tolist()
    bos = metadata["tokenizer.ggml.bos_token_id"]
    assert ids[0] == bos
    assert ids.count(bos) == 1


def test_a_bos_that_the_template_leaves_to_the_tokenizer_is_put_in_front_and_not_learned():
    metadata = metadata_of("no_system")
    chat, tokenizer = compiled(metadata)
    assert chat.bos_token_id == 0
    encoded = chat.encode(tokenizer, messages(("user", "hi"), ("assistant", "yes")))
    assert len(encoded.token_ids) == len(encoded.label_mask)
    assert tokenizer.decode(encoded.token_ids[encoded.label_mask == 1]) == "yes</s>"


@pytest.mark.parametrize("name", ["system_in_first_user", "instruction_brackets"])
@pytest.mark.parametrize(
    "turns",
    [[("assistant", "a")], [("user", "a"), ("user", "b")], [("system", "a"), ("assistant", "b")]],
    ids=["answer first", "two users", "no user"],
)
def test_an_order_of_roles_that_the_template_refuses_is_refused_on_the_phone(name, turns):
    chat, template = COMPILED[name]
    with pytest.raises(TemplateRefusal):
        template.render(turns, False)
    with pytest.raises(UserError, match="does not allow"):
        chat.render(messages(*turns))


def test_a_model_without_system_turns_says_so_and_refuses_them():
    chat = COMPILED["no_system"][0]
    assert not chat.supports_system
    with pytest.raises(UserError, match=r"does not allow system after start; allowed: .*user"):
        chat.render(messages(("user", "hi")), "You sell linen.")


def test_a_blank_that_the_prompt_leaves_to_the_model_is_learned_with_the_answer():
    chat, tokenizer = compiled(metadata_of("instruction_brackets"))
    assert chat.assistant_start == " "
    encoded = chat.encode(tokenizer, messages(*DIALOGUE))
    assert tokenizer.decode(encoded.token_ids[encoded.label_mask == 1]) == " two </s> four </s>"
    asked = chat.render(messages(*DIALOGUE[:3]), None, True).text
    assert chat.render(messages(*DIALOGUE)).text == asked + " four </s>"


def test_a_role_that_the_template_leaves_out_without_a_word_is_refused_and_does_not_vanish():
    chat, template = COMPILED["chatml_thinking"]
    turns = [("user", "a"), ("tool", "lost"), ("assistant", "b")]
    assert "lost" not in template.render(turns, False)
    with pytest.raises(UserError, match="does not allow tool after user"):
        chat.render(messages(*turns))


def test_tool_answers_in_a_row_share_a_turn_where_the_template_says_so():
    chat, template = COMPILED["chatml_default_system"]
    turns = [("user", "q"), ("assistant", "call"), ("tool", "1"), ("tool", "2"), ("assistant", "done")]
    assert chat.render(messages(*turns)).text == template.render(turns, False)


IM = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
ASK = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param(
            "{% for m in messages %}" + IM.replace("m.content", "m.content|upper") + "{% endfor %}" + ASK, ["written 0 times"], id="upper case"
        ),
        pytest.param(
            "{% for m in messages %}" + IM.replace("m.content", "m.content|replace('e', 'E')") + "{% endfor %}" + ASK,
            ["written as segments"],
            id="replaces",
        ),
        pytest.param(
            "{% for m in messages %}" + IM.replace("m.content", "m.content[:12]") + "{% endfor %}" + ASK, ["a user turn with the text"], id="cuts off"
        ),
        pytest.param("{% for m in messages %}{{ loop.index }}" + IM + "{% endfor %}" + ASK, ["between", "elsewhere"], id="numbers its turns"),
        pytest.param("{% for m in messages %}" + IM.replace("<|im_end|>", "") + "{% endfor %}" + ASK, ["no control token ends"], id="no end token"),
        pytest.param(
            "{% for m in messages %}" + IM + "{% endfor %}" + ASK.replace("assistant", "model"), ["asks for an answer with"], id="asks otherwise"
        ),
        pytest.param("{% for m in messages[-1:] %}" + IM + "{% endfor %}" + ASK, ["written 0 times"], id="forgets turns"),
        pytest.param("{% for m in messages %}{{ m.content }}" + IM + "{% endfor %}" + ASK, ["written 2 times"], id="repeats turns"),
        pytest.param("{% for m in messages|reverse %}" + IM + "{% endfor %}" + ASK, ["another order"], id="backwards"),
        pytest.param("{{ raise_exception('not for chatting') }}", ["not for chatting"], id="raises"),
        pytest.param("{% for m in messages %}", ["no valid Jinja", "line 1"], id="not Jinja"),
        pytest.param("{{ messages.__class__.__mro__[1].__subclasses__() }}", ["refuses it"], id="climbs out of the sandbox"),
        pytest.param(" \n", ["no chat template"], id="blank"),
    ],
)
def test_a_template_that_segments_cannot_say_is_refused_with_what_differed(source, words):
    with pytest.raises(UserError) as caught:
        compiled(with_template(source))
    assert str(caught.value).startswith("m.gguf: ")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_model_without_a_template_is_refused():
    with pytest.raises(UserError, match="no chat template"):
        compiled(tiny_metadata(control=CHATML, eos_token_id=2))


def test_bos_written_twice_is_refused():
    source = "{{ bos_token + bos_token }}{% for m in messages %}" + IM + "{% endfor %}" + ASK
    with pytest.raises(UserError, match="BOS"):
        compiled(tiny_metadata(control=CHATML, bos_token_id=0, eos_token_id=2, chat_template=source))


def test_the_proof_notices_a_changed_segment(smollm2):
    metadata, chat, tokenizer = smollm2
    control = control_tokens(metadata, "m")
    assert prove(chat, jinja(metadata), tokenizer, control, "m") > 150
    broken = chat.to_dict()
    broken["between"]["assistant"]["user"] += " "
    with pytest.raises(UserError, match="at character"):
        prove(ChatFormat.from_dict(broken), jinja(metadata), tokenizer, control, "m")


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"assistant_end": ""},
        {"stop_token_ids": []},
        {"text_rules": {"user": "shout"}},
        {"between": {"nobody": {}}},
        {"assistant_end": "<x>"},
    ],
    ids=["unknown key", "no end", "no stop", "unknown rule", "unknown turn", "end that no turn has"],
)
def test_a_damaged_format_is_refused(smollm2, change):
    with pytest.raises(UserError, match="chat format"):
        ChatFormat.from_dict({**smollm2[1].to_dict(), **change})


@pytest.mark.oracle
@pytest.mark.parametrize("name", [*MODELS, "smollm2"])
def test_our_jinja_renders_as_transformers_does(name, smollm2_path):
    pytest.importorskip("transformers")
    from transformers.utils.chat_template_utils import render_jinja_template

    metadata = GgufFile.open(smollm2_path).metadata if name == "smollm2" else metadata_of(name)
    tokens = metadata["tokenizer.ggml.tokens"]
    texts = {
        f"{kind}_token": tokens[metadata[f"tokenizer.ggml.{kind}_token_id"]]
        for kind in ("bos", "eos")
        if f"tokenizer.ggml.{kind}_token_id" in metadata
    }
    fixed = {"date_string": "26 Jul 2024"} if name == "headers_with_date" else {}
    compared = 0
    for turns, generate in proof_conversations(with_system=name != "no_system"):
        conversation = [{"role": role, "content": text} for role, text in turns]
        theirs, _ = render_jinja_template(
            conversations=[conversation],
            chat_template=metadata["tokenizer.chat_template"],
            add_generation_prompt=generate,
            enable_thinking=False,
            **texts,
            **fixed,
        )
        assert jinja(metadata).render(turns, generate) == theirs[0]
        compared += 1
    assert compared > 80


@pytest.mark.oracle
def test_smollm2_conversations_become_the_tokens_of_transformers(smollm2, smollm2_path):
    pytest.importorskip("transformers")
    from tests.oracles.tokenizer_golden import transformers_tokenizer

    reference = transformers_tokenizer(smollm2_path)
    _, chat, tokenizer = smollm2
    for turns, generate in proof_conversations(with_system=True):
        conversation = [{"role": role, "content": text} for role, text in turns]
        theirs = reference.apply_chat_template(conversation, add_generation_prompt=generate, return_dict=True)["input_ids"]
        assert chat.encode(tokenizer, messages(*turns), None, generate).token_ids.tolist() == theirs
