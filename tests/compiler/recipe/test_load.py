"""The recipe: what the YAML tree and the command line mean together."""

import dataclasses
import os
import typing
from pathlib import Path

import pytest
import yaml
from mobilefinetuner.compiler.recipe.errors import RecipeError
from mobilefinetuner.compiler.recipe.load import ModelSource, Recipe, load_recipe, recipe_as_yaml, shipped_configs, template_folder
from mobilefinetuner.compiler.recipe.overrides import GROUPS
from mobilefinetuner.compiler.recipe.reader import known_keys
from mobilefinetuner.compiler.recipe.reference import field_docstrings, with_reference

SHIPPED = sorted(path.relative_to(shipped_configs()) for path in shipped_configs().glob("*/*.yaml"))


def problems_of(*overrides, **where):
    with pytest.raises(RecipeError) as caught:
        load_recipe(overrides, **where)
    assert caught.value.exit_code == 2
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.problems), "one line for each problem"
    return {problem.where: problem for problem in caught.value.problems}


def own_tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return root


@pytest.mark.parametrize("shipped", SHIPPED, ids=str)
def test_every_shipped_yaml_gives_a_recipe_and_its_header_says_how_to_run_it(shipped, tmp_path):
    group, name = shipped.parent.name, shipped.stem
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    needed = {"gguf_file": ["model.source.path=m.gguf"], "exact": ["train.adapter=lora"]}
    recipe = load_recipe([f"{group}={name}", *needed.get(name, [])], cwd=tmp_path)
    assert isinstance(recipe, Recipe)
    header = (shipped_configs() / shipped).read_text(encoding="utf-8")
    assert header.startswith("# ") and "#   mft compile " in header and f"{group}={name}" in header
    if group in ("model", "scenario", "device"):
        assert getattr(recipe, group).name == name


def test_all_five_groups_ship_files():
    assert {path.parent.name for path in SHIPPED} == set(GROUPS)


def test_the_defaults_are_the_ones_that_were_measured_to_work():
    train = load_recipe().train
    assert (train.adapter, train.rank, train.scale, train.learning_rate) == ("grouped", 16, 2.0, 1.5e-3)
    assert (train.epochs, train.batch_samples, train.bucket_shapes) == (5, 4, ((1, 64), (1, 128), (1, 256)))


def test_nothing_in_a_recipe_can_be_changed():
    recipe = load_recipe()
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.train.rank = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.model.source.path = Path("x")


@pytest.mark.parametrize("typed", ["1e-4", "0.0001", '"1e-4"', "'0.0001'", "1E-4", ".0001", "1.0e-04"])
def test_a_learning_rate_means_the_same_in_every_spelling(typed, tmp_path):
    assert load_recipe([f"train.learning_rate={typed}"]).train.learning_rate == 0.0001
    folder = own_tree(tmp_path, train__mine=f"learning_rate: {typed}\n")
    assert load_recipe(["train=mine"], [folder]).train.learning_rate == 0.0001


@pytest.mark.parametrize(
    "override, allowed",
    [
        ("train.rank=0", "at least 1"), ("train.rank=1.5", "whole number"), ("train.rank=abc", "whole number"),
        ("train.rank=true", "whole number"), ("train.learning_rate=nan", "above 0"), ("train.learning_rate=inf", "above 0"),
        ("train.learning_rate=-1e-4", "above 0"), ("train.scale=0", "above 0"), ("train.beta1=1.0", "below 1"),
        ("train.schedule=cosin", "linear, cosine, constant"), ("train.compute=int8", "fp32"), ("train.buckets=[1x0]", "1x256"),
        ("train.buckets=[]", "at least one"), ("train.buckets=[1x64,1x64]", "once"), ("train.targets=[attn_z]", "attn_q"),
        ("train.targets=[attn_q,attn_q]", "once"), ("scenario.overlap_share=0.9", "at most 0.5"), ("scenario.languages=[english]", "en, zh"),
        ("device.memory_budget_mb=1", "at least 32"),
        ("device.arch=riscv64", "x86_64, aarch64"), ("device.threads=200", "at most"),
        ("device.features=[dotprod]", "avx2"), ("device.battery_slow_celsius=50", "its default, 40.0"), ("model.name=a/b", "letters"),
        ("model.source.sha256=abc", "64"), ("train.max_grad_norm=null", "number"), ("scenario.window_tokens=512", "at most 256"),
        ("quantization.merge=lift", "fold, exact, mount"), ("scenario.rules.duplicates=fuzzy", "off, exact, near"),
        ("scenario.rules.min_answer_chars=x", "whole"),
    ],
    ids=lambda value: value if "=" in value else "",
)  # fmt: skip
def test_a_value_out_of_range_is_refused_with_its_key_and_what_is_allowed(override, allowed):
    key = override.partition("=")[0]
    problem = next(problem for where, problem in problems_of(override).items() if key.startswith(where) or where.startswith(key))
    assert allowed in str(problem)


def test_all_mistakes_of_all_kinds_come_in_one_report(tmp_path):
    found = problems_of(
        "train.rank=0", "train.learnin_rate=1", "device.memory_budget_mb=abc", "scenario.system_prompt=a, b", "model=smolm2",
        "train.seed=${train.nope}", "quantization=q8_9", "--nonsense", cwd=tmp_path,
    )  # fmt: skip
    assert set(found) == {
        "train.rank", "train.learnin_rate", "device.memory_budget_mb", "scenario.system_prompt", "model", "train.seed", "quantization", "--nonsense",
    }  # fmt: skip


def test_an_unknown_key_is_refused_and_the_known_keys_are_listed():
    problem = problems_of("train.rnk=4")["train.rnk"]
    assert "train.rank" in problem.allowed and "train.learning_rate" in problem.allowed
    assert problem.remedy == "train.rank=4"


def test_an_unknown_key_in_a_yaml_is_refused_as_well(tmp_path):
    folder = own_tree(tmp_path, train__mine="rank: 4\nlearning_rte: 1e-4\n")
    problem = problems_of("train=mine", config_dirs=[folder])["train.learning_rte"]
    assert "train.learning_rate" in problem.allowed and problem.remedy == "train.learning_rate"


def test_an_unknown_section_key_in_a_config_yaml_is_refused(tmp_path):
    text = (shipped_configs() / "config.yaml").read_text(encoding="utf-8")
    folder = own_tree(tmp_path, config=text + "\nouput: here\n")
    assert "ouput" in problems_of(config_dirs=[folder])


def test_an_unknown_file_of_a_group_is_refused_and_the_nearest_is_named():
    problem = problems_of("device=pixel6")["device"]
    assert "raspberry_pi_5" in problem.allowed and problem.remedy == "device=pixel_6"


@pytest.mark.parametrize(
    "word", ["+train.rank=4", "++train.rank=4", "~train.rank", "train.rank", "=4", "hydra.run.dir=x", "train@x=default", "train.targets[0]=x"]
)
def test_what_hydra_would_add_delete_or_move_is_refused(word):
    assert problems_of(word)


@pytest.mark.parametrize(
    "text", ["a, b", "a: b, c", "50% (off)", "#1", "你好，世界", "it's", 'say "hi"', "x=y", "{a}", "a;b", "100%, sure", "emoji 😀!"]
)
def test_the_advice_how_to_quote_a_value_is_right(text):
    import shlex

    advice = problems_of(f"scenario.system_prompt={text}")["scenario.system_prompt"].remedy
    (word,) = shlex.split(advice)
    assert load_recipe([word]).scenario.system_prompt == text


@pytest.mark.parametrize("text", ["50%", "a:b", "C:\\x", "a\\", "1_000", "007", "true", "1e5", "hello world", "3.10"])
def test_a_text_that_needs_no_quotes_arrives_as_it_was_typed(text):
    assert load_recipe([f"scenario.system_prompt={text}"]).scenario.system_prompt == text


def test_a_comma_never_becomes_a_sweep():
    problem = problems_of("train.rank=4,8")["train.rank"]
    assert "several values" in problem.found
    assert problems_of("train.buckets=1x64,1x128")["train.buckets"].remedy == "'train.buckets=[1x64,1x128]'"
    for sweep in ("choice(4,8)", "range(1,8)", "glob(*)"):
        assert "train.rank" in problems_of(f"train.rank={sweep}")


@pytest.mark.parametrize(
    "text", ["${train.nope}", "${nope.key}", "${train.seed}", "${oc.env:MFT_NO_SUCH_VARIABLE}", "${nosuch:resolver}", "${machine:colour}"]
)
def test_a_broken_interpolation_fails_when_the_recipe_is_made(text):
    assert "train.seed" in problems_of(f"train.seed={text}")


def test_an_interpolation_may_refer_to_a_declared_default():
    assert load_recipe(["train.seed=${train.batch_samples}"]).train.seed == 4


def test_of_two_overrides_of_a_key_the_later_holds():
    assert load_recipe(["train.rank=4", "train.rank=12"]).train.rank == 12
    assert load_recipe(["scenario=education", "scenario=writing"]).scenario.name == "writing"


def test_a_value_override_holds_wherever_the_groups_file_is_chosen():
    for words in (["train.rank=12", "train=quick"], ["train=quick", "train.rank=12"]):
        recipe = load_recipe(words)
        assert (recipe.train.rank, recipe.train.epochs) == (12, 2)


def test_a_section_override_changes_only_the_keys_it_names():
    recipe = load_recipe(["train={rank: 4, epochs: 3}"])
    assert (recipe.train.rank, recipe.train.epochs, recipe.train.batch_samples) == (4, 3, 4)


def test_alpha_over_rank_is_stored_as_the_scale():
    recipe = load_recipe(["train.alpha=32", "train.rank=8"])
    assert recipe.train.scale == 4.0 and "alpha" not in recipe_as_yaml(recipe)


def test_alpha_beside_scale_is_refused(tmp_path):
    assert "train.alpha" in problems_of("train.alpha=32", "train.scale=2")
    folder = own_tree(tmp_path, train__mine="scale: 2\nalpha: 16\n")
    assert "train.alpha" in problems_of("train=mine", config_dirs=[folder])


def test_an_alpha_of_zero_is_a_zero_scale_and_refused():
    assert "train.scale" in problems_of("train.alpha=0")


def test_an_adapter_is_only_paired_with_a_merge_that_can_take_it():
    assert problems_of("train.adapter=lora", "quantization=fold")["quantization.merge"].allowed == "auto, exact, mount"
    assert problems_of("quantization=exact")["quantization.merge"].allowed == "auto, fold, mount"
    assert "quantization.base=Q5_1" in problems_of("quantization.base=Q8_0")["quantization.base"].remedy
    assert load_recipe(["quantization.base=Q8_0", "train.adapter=lora"]).quantization.base == "Q8_0"
    assert load_recipe(["quantization=exact", "train.adapter=lora"]).quantization.merge == "exact"
    for kind in ("grouped", "lora"):
        assert load_recipe(["quantization=mount", f"train.adapter={kind}"]).quantization.merge == "mount"


def test_code_for_a_cpu_whose_features_the_profile_does_not_list_is_refused():
    assert "sve" in str(problems_of("device=pixel_8", "device.cpu=cortex-a715")["device.cpu"])


def test_relative_paths_start_where_the_command_was_typed_and_the_directory_does_not_move(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.gguf").write_bytes(b"GGUF")
    recipe = load_recipe(["model=gguf_file", "model.source.path=sub/m.gguf", "out=../elsewhere"])
    assert recipe.model.source.path == tmp_path / "sub" / "m.gguf"
    assert recipe.out == tmp_path.parent / "elsewhere"
    assert Path(os.getcwd()) == tmp_path and [path.name for path in tmp_path.iterdir()] == ["sub"]


def test_the_default_place_is_named_after_model_scenario_and_device(tmp_path):
    assert load_recipe(["device=pixel_6"], cwd=tmp_path).out == tmp_path / "bundles/build/smollm2_135m-customer_service-pixel_6"


def test_a_gguf_that_is_not_there_is_refused(tmp_path):
    assert "nope.gguf" in problems_of("model=gguf_file", "model.source.path=nope.gguf", cwd=tmp_path)["model.source.path"].found
    assert "model.source.path" in problems_of("model=gguf_file", cwd=tmp_path)


def test_files_in_an_own_folder_are_found_and_win_over_the_shipped_ones(tmp_path):
    folder = own_tree(tmp_path / "a b, c", train__mine="rank: 5\n", train__quick="rank: 6\n")
    assert load_recipe(["train=mine"], [folder]).train.rank == 5
    assert load_recipe(["train=quick"], [folder]).train.rank == 6
    later = own_tree(tmp_path / "later", train__quick="rank: 7\n")
    assert load_recipe(["train=quick"], [folder, later]).train.rank == 7
    assert load_recipe(["train=mine"], ["later", "a b, c"], cwd=tmp_path).train.rank == 5


def test_an_own_folder_that_is_not_there_is_named():
    from mobilefinetuner.runtime.errors import UserError

    with pytest.raises(UserError, match="no_such_folder"):
        load_recipe([], ["no_such_folder"])


def test_a_group_can_be_one_yaml_file_anywhere(tmp_path):
    profile = (shipped_configs() / "device" / "pixel_6.yaml").read_text(encoding="utf-8").replace("name: pixel_6", "name: probed")
    (tmp_path / "probed.yaml").write_text(profile, encoding="utf-8")
    assert load_recipe(["device=probed.yaml", "device.threads=2"], cwd=tmp_path).device.name == "probed"
    assert "device" in problems_of("device=elsewhere.yaml", cwd=tmp_path)


@pytest.mark.parametrize(
    "text",
    ["rank: [1\n", "rank: 4\n rank: 5\n", "\trank: 4\n", "- 1\n- 2\n", "just words\n", "defaults:\n  - nothing_there\n", "rank: &a [*a]\n",
     "rank: \udcff\n"],
    ids=["open bracket", "indentation", "tab", "list", "scalar", "defaults", "recursion", "bytes"],
)  # fmt: skip
def test_a_yaml_that_cannot_be_read_ends_in_one_sentence(text, tmp_path):
    folder = own_tree(tmp_path, train__mine=text)
    assert problems_of("train=mine", config_dirs=[folder])
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert problems_of("train=x.yaml", cwd=tmp_path)


def test_a_number_in_yaml_is_no_text_because_it_would_lose_its_zeros(tmp_path):
    folder = own_tree(tmp_path, model__mine="name: m\nsource: {kind: pypi_wheel, package: p, version: 0.10, file: f, sha256: '%s'}\n" % ("0" * 64))
    assert "quotes" in problems_of("model=mine", config_dirs=[folder])["model.source.version"].remedy


def test_a_word_that_yaml_reads_as_false_is_refused_with_the_advice_to_quote_it(tmp_path):
    folder = own_tree(tmp_path, scenario__mine="name: mine\ntemplate: writing\nrules: {duplicates: off}\n")
    assert problems_of("scenario=mine", config_dirs=[folder])["scenario.rules.duplicates"].remedy.endswith('duplicates: "off"')
    folder = own_tree(tmp_path, scenario__mine="name: mine\ntemplate: writing\nrules: {duplicates: 'off'}\n")
    assert load_recipe(["scenario=mine"], [folder]).scenario.rules == {"duplicates": "off"}


def test_a_mistake_inside_a_list_of_sections_is_named_with_its_place():
    found = problems_of("device.variants=[{cpu: 'a b', features: [sve]}, {cpu: x, feature: []}]")
    assert set(found) == {"device.variants[0].cpu", "device.variants[1].feature", "device.variants[1].features"}


def test_the_printed_recipe_gives_the_same_recipe_again(tmp_path):
    recipe = load_recipe(["scenario=writing", "train=quick", 'scenario.system_prompt="你好, 世界: #1\\n"', "out=there"], cwd=tmp_path)
    for encoding in ("utf-8", "ascii"):
        text = recipe_as_yaml(recipe, encoding)
        text.encode(encoding)
        folder = own_tree(tmp_path / encoding, config=text)
        assert load_recipe([], [folder], cwd=tmp_path / encoding) == recipe


def test_the_portable_recipe_names_no_place_on_this_machine(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    recipe = load_recipe(["model=gguf_file", "model.source.path=m.gguf"], cwd=tmp_path)
    assert str(tmp_path) not in yaml.safe_dump(recipe.portable())
    assert recipe.portable()["model"]["source"]["path"] == "m.gguf"


def test_the_scenarios_settings_are_what_the_phone_accepts():
    from mobilefinetuner.runtime.data.scenario import Scenario

    recipe = load_recipe(["scenario=education", "scenario.rules.duplicates=exact", "scenario.rules.min_answer_chars=2"])
    settings = recipe.scenario.settings()
    assert settings["rules"] == {"duplicates": "exact", "min_answer_chars": 2}
    scenario = Scenario.from_json({**settings, "chat": {}})
    assert scenario.rules.duplicates == "exact" and scenario.window_tokens == recipe.scenario.window_tokens


@pytest.mark.parametrize("scenario", [path.stem for path in SHIPPED if path.parent.name == "scenario"])
def test_every_shipped_scenario_becomes_a_scenario_json(scenario):
    from mobilefinetuner.runtime.data.scenario import scenario_document

    recipe = load_recipe([f"scenario={scenario}", "scenario.rules.duplicates=exact"])
    document = scenario_document(template_folder(recipe.scenario), recipe.scenario.settings(), {})
    assert document["rules"]["duplicates"] == "exact" and document["system_prompt"]
    assert document["window_tokens"] == recipe.scenario.window_tokens


def test_a_template_that_is_not_there_is_refused_and_an_own_folder_is_taken(tmp_path):
    problem = problems_of("scenario.template=customer_servce")["scenario.template"]
    assert "customer_service, education, writing" in problem.allowed
    own = tmp_path / "my template"
    own.mkdir()
    (own / "rules.json").write_text("{}", encoding="utf-8")
    recipe = load_recipe(["scenario.template=my template"], cwd=tmp_path)
    assert template_folder(recipe.scenario, tmp_path) == own
    assert recipe.portable()["scenario"]["template"] == "my template"


def test_the_scenarios_own_number_of_epochs_comes_before_the_trainings():
    assert load_recipe(["scenario.epochs=3"]).epochs == 3
    assert load_recipe(["train.epochs=4"]).epochs == 4


def test_the_documentation_ends_with_the_tables_of_all_keys_as_they_are_declared():
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == with_reference(page), "python -m mobilefinetuner.compiler.recipe.reference docs/configuration.md"
    assert not [key for key in known_keys(Recipe) if f"`{key}`" not in page]


def test_every_field_says_what_it_means():
    sections = [Recipe, ModelSource, *(field for field in typing.get_type_hints(Recipe).values() if dataclasses.is_dataclass(field))]
    silent = [
        (section.__name__, field.name)
        for section in sections
        for field in dataclasses.fields(section)
        if not field_docstrings(section).get(field.name)
    ]
    assert not silent
