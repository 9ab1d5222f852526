"""The model's Jinja chat template as segments that the phone can put together without Jinja.

In:  GGUF metadata and the model's tokenizer.
Out: ChatFormat, proved to give the template's text and tokens on every conversation of proof_conversations.py.
The segments are found by rendering: turns with marker texts go through the template, and what stands between two markers is
the text between those two turns. A template that does more than that is refused with the conversation that showed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any, cast

from ...runtime.bundle.chat_format import ASSISTANT_SLOTS, END, GENERATE, LAST_ASSISTANT, START, TEXT_RULES, ChatFormat, TextRule, turn_slots
from ...runtime.bundle.tokenizer import Tokenizer
from ...runtime.errors import UserError
from ...runtime.message import Message, Role
from .jinja_template import PINNED_DATE, JinjaTemplate, TemplateRefusal
from .proof_conversations import DIFFICULT_TEXTS, Turns, proof_conversations, unusual_sequences, usual_sequences
from .tokenizer_json import ControlTokens, control_tokens

Pair = tuple[str, str]
Joints = dict[Pair, str]

END_OF_TURN_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
)
"""Control tokens that end an answer in any model that has them; a file names only one or two of its own."""

_OTHER_DATE = date(2031, 12, 3)


def compile_chat_format(metadata: Mapping[str, Any], tokenizer: Tokenizer, where: str) -> ChatFormat:
    """ChatFormat of the GGUF's template. UserError if there is none, or if segments cannot say what it says."""
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        raise UserError(where, "has no chat template (tokenizer.chat_template)", remedy="an instruction-tuned model")
    control = control_tokens(metadata, where)
    texts = _token_texts(metadata, control)
    template = JinjaTemplate(source, texts, where)
    usual = usual_joints(template, where)
    assistant_start = _assistant_start(usual, where)
    joints = {
        pair: text
        for pair, text in (usual | unusual_joints(template, usual)).items()
        if pair[1] not in ASSISTANT_SLOTS or text.endswith(assistant_start)
    }
    rules = _find_text_rules(template, joints, where)
    contradicted = contradicted_pairs(template, usual, joints, rules, where)
    joints = {pair: text for pair, text in joints.items() if pair not in contradicted and {*pair} <= {START, END, GENERATE, *rules}}
    chat = ChatFormat(
        between=_as_table(joints),
        text_rules=cast("Mapping[str, TextRule]", rules),
        assistant_start=assistant_start,
        assistant_end=(assistant_end := _assistant_end(joints, control, where)),
        stop_token_ids=_stop_token_ids(assistant_end, control, tokenizer, where),
        bos_token_id=_bos_to_prepend(joints, control, texts.get("bos_token", ""), where),
        default_system=_default_system(joints),
        reserved_texts=_reserved_texts(template, usual, rules),
        pinned_date=_pinned_date(template, JinjaTemplate(source, texts, where, _OTHER_DATE)),
    )
    prove(chat, template, tokenizer, control, where)
    return chat


def usual_joints(template: JinjaTemplate, where: str) -> Joints:
    """The text between neighbouring turns of ordinary dialogues, which must depend on nothing but the two."""
    joints: Joints = {}
    for with_system in (False, True):
        for roles, generate in usual_sequences(with_system):
            try:
                found = _joints_of(template, roles, generate)
            except TemplateRefusal as refusal:
                if with_system:
                    break  # the model knows no system turn; ChatFormat.supports_system says so
                raise _not_representable(where, roles, f"the template refuses it ({refusal})") from refusal
            for pair, text in found:
                if joints.setdefault(pair, text) != text:
                    raise _not_representable(where, roles, f"between {pair[0]} and {pair[1]} it writes {text!r}, elsewhere {joints[pair]!r}")
    return joints


def unusual_joints(template: JinjaTemplate, usual: Joints) -> Joints:
    """Further pairs of neighbours that the template allows and always writes in one way."""
    joints: Joints = {}
    doubtful: set[Pair] = set()
    for roles, generate in unusual_sequences():
        try:
            found = _joints_of(template, roles, generate)
        except TemplateRefusal:
            continue
        for pair, text in found:
            if pair not in usual and joints.setdefault(pair, text) != text:
                doubtful.add(pair)
    return {pair: text for pair, text in joints.items() if pair not in doubtful}


def _reserved_texts(template: JinjaTemplate, usual: Joints, rules: Mapping[str, str]) -> tuple[str, ...]:
    """The template's own string literals that change more than themselves when a turn contains them.

    Single literals first, then an opening tag with its closing one, unless one of the two is reserved already.
    """
    literals = sorted((text for text in template.literals if text.strip()), key=lambda text: (len(text), text))
    candidates = [(text, (text, f"a{text}", f"{text}b", f"a{text}b", f"{text}{text}")) for text in literals]
    candidates += [(text, (f"{text}b{text.replace('<', '</', 1)}",)) for text in literals if "<" in text]
    heads = ((), ("system",)) if "system" in rules else ((),)
    places = [(head + ("user", "assistant") * 2, place) for head in heads for place in range(len(head) + 4)]
    reserved: list[str] = []
    for literal, forms in candidates:
        if not any(found in form for found in reserved for form in forms):
            examples = (_with_text(roles, place, form) for roles, place in places for form in forms)
            if any(_rendered(template, turns, False) != _composed(usual, rules, turns, False) for turns in examples):
                reserved.append(literal)
    return tuple(reserved)


def _with_text(roles: Sequence[str], place: int, text: str) -> Turns:
    return [(role, text if index == place else f"turn {index}") for index, role in enumerate(roles)]


def _composed(joints: Joints, rules: Mapping[str, str], turns: Turns, generate: bool) -> str:
    pairs = _pairs([role for role, _ in turns], generate)
    pieces = [joints[pair] + TEXT_RULES[cast(TextRule, rules[pair[1]])](text) for pair, (_, text) in zip(pairs, turns)]
    return "".join(pieces) + joints[pairs[-1]]


def contradicted_pairs(template: JinjaTemplate, usual: Joints, joints: Joints, rules: Mapping[str, str], where: str) -> set[Pair]:
    """The unusual pairs in sequences that the template refuses or writes otherwise: the phone will refuse those pairs."""
    contradicted: set[Pair] = set()
    for number, (roles, generate) in enumerate(unusual_sequences()):
        pairs = _pairs(roles, generate)
        if not all(pair in joints for pair in pairs) or not all(slot in rules for _, slot in pairs[:-1]):
            continue
        for shift in (0, number):
            turns = [(role, DIFFICULT_TEXTS[(shift * (index + 1)) % len(DIFFICULT_TEXTS)]) for index, role in enumerate(roles)]
            if _rendered(template, turns, generate) == _composed(joints, rules, turns, generate):
                continue
            unusual = {pair for pair in pairs if pair not in usual}
            if not unusual:
                raise _not_representable(where, roles, "its text does not depend on neighbouring turns alone")
            contradicted |= unusual
    return contradicted


def _rendered(template: JinjaTemplate, turns: Turns, generate: bool) -> str | None:
    try:
        return template.render(turns, generate)
    except TemplateRefusal:
        return None


def _pairs(roles: Sequence[str], generate: bool) -> list[Pair]:
    slots = turn_slots(roles, generate)
    return list(pairwise(slots))


def _joints_of(template: JinjaTemplate, roles: Sequence[str], generate: bool) -> list[tuple[Pair, str]]:
    """TemplateRefusal also when a turn's text is not there exactly once and in order."""
    markers = [f"⟦turn {index}⟧" for index in range(len(roles))]
    rest = template.render(list(zip(roles, markers)), generate)
    texts = []
    for marker in markers:
        if rest.count(marker) != 1:
            raise TemplateRefusal(f"a turn's text is written {rest.count(marker)} times")
        text, rest = rest.split(marker)
        if "⟦turn " in text:
            raise TemplateRefusal("the turns are written in another order")
        texts.append(text)
    return list(zip(_pairs(roles, generate), [*texts, rest]))


def _find_text_rules(template: JinjaTemplate, joints: Joints, where: str) -> dict[str, str]:
    """What the template does to the text of each kind of turn; a tool's turn may stay without a rule."""
    rules: dict[str, str] = {}
    for slot, roles, index in _examples_of_slots(joints):
        markers = [f"⟦turn {turn}⟧" for turn in range(len(roles))]
        rendered = []
        for text in DIFFICULT_TEXTS:
            turns = [(role, text if turn == index else marker) for turn, (role, marker) in enumerate(zip(roles, markers))]
            rendered.append((text, _rendered(template, turns, False)))
        before, after = template.render(list(zip(roles, markers)), False).split(markers[index])
        fitting = [name for name, rule in TEXT_RULES.items() if all(shown == before + rule(text) + after for text, shown in rendered)]
        if not fitting and slot == "tool":
            continue
        if not fitting:
            text, shown = next((text, shown) for text, shown in rendered if shown != before + text + after)
            how = "is refused" if shown is None else f"gives {_difference(shown, before + text + after)}"
            raise _not_representable(where, roles, f"a {slot} turn with the text {text!r} {how}")
        rules[slot] = fitting[0]
    return rules


def _examples_of_slots(joints: Joints) -> Iterable[tuple[str, tuple[str, ...], int]]:
    """For each kind of turn in the joints: a sequence of roles that has it, and where."""
    dialogue = ("user", "assistant", "user", "assistant")
    yield "user", dialogue, 0
    yield "assistant", dialogue, 1
    yield LAST_ASSISTANT, dialogue, 3
    if (START, "system") in joints:
        yield "system", ("system", *dialogue), 0
    if any("tool" in pair for pair in joints):
        for roles, _ in unusual_sequences():
            if "tool" in roles and all(pair in joints for pair in _pairs(roles, False)):
                yield "tool", roles, roles.index("tool")
                return


def _assistant_start(usual: Joints, where: str) -> str:
    """What the model itself says before its answer: the learned text goes on where the text that asks for an answer ends."""
    asked, learned = usual[("user", GENERATE)], usual[("user", LAST_ASSISTANT)]
    start = learned[len(asked) :]
    if not learned.startswith(asked) or not usual[("user", "assistant")].endswith(start):
        raise _not_representable(where, ("user", "assistant"), f"it asks for an answer with {asked!r} but writes {learned!r} before one")
    return start


def _assistant_end(joints: Joints, control: ControlTokens, where: str) -> str:
    """The beginning of what follows an answer, up to its first control token."""
    after = joints[(LAST_ASSISTANT, END)]
    places = [(after.index(token), -len(token)) for token in control.texts if token in after]
    if not places:
        raise _not_representable(where, ("user", "assistant"), f"no control token ends the answer; it is followed by {after!r}")
    start, negative_length = min(places)
    end = after[: start - negative_length]
    for (slot, following), text in joints.items():
        if slot in ASSISTANT_SLOTS and not text.startswith(end):
            raise _not_representable(where, (slot, following), f"the answer is followed by {text!r} and not by {end!r}")
    return end


def _stop_token_ids(assistant_end: str, control: ControlTokens, tokenizer: Tokenizer, where: str) -> tuple[int, ...]:
    stops = {tokenizer.encode(assistant_end)[-1], *control.end_of_turn_ids}
    stops |= {tokenizer.token_id(text) for text in END_OF_TURN_TEXTS if text in control.texts}
    if control.eos_id is not None:
        stops.add(control.eos_id)
    if None in stops:
        raise UserError(where, "the tokenizer lacks a control token of the vocabulary")
    return tuple(sorted(stop for stop in stops if stop is not None))


def _bos_to_prepend(joints: Joints, control: ControlTokens, bos: str, where: str) -> int | None:
    """None if the template writes BOS itself or the model wants none: one BOS, never two."""
    starts = [text for (slot, _), text in joints.items() if slot == START]
    writes = {bool(bos) and text.startswith(bos) for text in starts}
    if any(bos and text.startswith(bos + bos) for text in starts) or len(writes) > 1:
        raise _not_representable(where, ("user",), "it begins some conversations with BOS and others without it, or writes it twice")
    return control.bos_id if control.add_bos and not writes.pop() else None


def _default_system(joints: Joints) -> str | None:
    """What stands in the system turn's place when there is none; it must read as if the user had written it."""
    before, after = joints.get((START, "system")), joints.get(("system", "user"))
    whole = joints[(START, "user")]
    if before is None or after is None or len(whole) < len(before) + len(after):
        return None
    if not before or not after or not (whole.startswith(before) and whole.endswith(after)):
        return None
    return whole[len(before) : len(whole) - len(after)]


def _pinned_date(template: JinjaTemplate, another_day: JinjaTemplate) -> str | None:
    turns = [("user", "a"), ("assistant", "b")]
    same = template.render(turns, False) == another_day.render(turns, False)
    return None if same else PINNED_DATE.isoformat()


def prove(chat: ChatFormat, template: JinjaTemplate, tokenizer: Tokenizer, control: ControlTokens, where: str) -> int:
    """Number of conversations on which segments and Jinja gave the same text and tokens; UserError at the first that differs."""
    proved = 0
    for turns, generate in proof_conversations(chat.supports_system):
        expected = template.render(turns, generate)
        messages = [Message(cast(Role, role), text) for role, text in turns]
        _compare(where, turns, chat.render(messages, None, generate).text, expected)
        if turns[0][0] == "system":
            _compare(where, turns, chat.render(messages[1:], turns[0][1], generate).text, expected)
        ids = tokenizer.encode(expected)
        if control.add_bos and ids[:1] != [control.bos_id]:
            ids = [control.bos_id, *ids]
        if chat.encode(tokenizer, messages, None, generate).token_ids.tolist() != ids:
            raise _not_representable(where, [role for role, _ in turns], "the tokens differ although the text is the same")
        proved += 1
    return proved


def _compare(where: str, turns: Turns, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise _not_representable(where, [role for role, _ in turns], _difference(theirs, ours))


def _difference(theirs: str, ours: str) -> str:
    at = next((index for index, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    return f"{theirs[at : at + 40]!r} at character {at} where segments give {ours[at : at + 40]!r}"


def _not_representable(where: str, roles: Sequence[str], how: str) -> UserError:
    return UserError(
        where,
        f"the chat template cannot be written as segments: in the conversation {' > '.join(roles)}, {how}",
        "templates whose text around a turn depends only on its neighbours",
        "a model with a simpler template",
    )


def _token_texts(metadata: Mapping[str, Any], control: ControlTokens) -> dict[str, str]:
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {"bos_token": control.bos_id, "eos_token": control.eos_id}
    ids |= {f"{name[:3]}_token": metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("unknown", "padding")}
    return {name: tokens[index] for name, index in ids.items() if index is not None}


def _as_table(joints: Joints) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for (slot, following), text in sorted(joints.items()):
        table.setdefault(slot, {})[following] = text
    return table
