"""From the YAML tree and the command line to one checked Recipe.

In:  overrides as typed, the user's own configuration folders, the directory the command was typed in.
Out: Recipe, frozen; or RecipeError with every problem in it.
OmegaConf stops here. Types are checked by RecipeReader and not by OmegaConf's structured configs, because those stop at the
first mistake.
"""

from __future__ import annotations

import contextlib
import importlib.resources
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import hydra
import hydra.version
import yaml
from hydra import compose
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.errors import HydraException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ...runtime.errors import UserError
from ...runtime.plain_data import fields_of, plain
from .errors import RecipeError, unknown_word
from .host_machine import register_machine_resolver
from .overrides import GROUPS, Overrides, parse_overrides
from .reader import RecipeReader, declared_defaults
from .schema import (
    DeviceRecipe,
    ModelRecipe,
    ModelSource,
    QuantizationRecipe,
    Recipe,
    ScenarioRecipe,
    TrainRecipe,
)

__all__ = [
    "DeviceRecipe", "ModelRecipe", "ModelSource", "QuantizationRecipe", "Recipe", "ScenarioRecipe", "TrainRecipe",
    "load_recipe", "recipe_as_yaml", "template_folder",
]  # fmt: skip


def load_recipe(overrides: Sequence[str] = (), config_dirs: Sequence[Path | str] = (), cwd: Path | None = None) -> Recipe:
    """The recipe that these overrides mean; raises RecipeError, never changes the working directory.

    config_dirs: folders laid out like configs/; the later one wins, and all of them win over what is shipped.
    """
    cwd = Path.cwd() if cwd is None else Path(cwd)
    folders = [_existing_folder(cwd / Path(folder).expanduser()) for folder in reversed(config_dirs)] + [shipped_configs()]
    chosen, problems = parse_overrides(overrides)  # 1. read the command line
    unknown = _unknown_choices(chosen, folders, cwd)
    chosen = chosen.without_groups({problem.where for problem in unknown})
    config = _compose(chosen, folders, cwd)  # 2. compose the chosen files
    problems += _apply(chosen, config)  # 3. apply the values in the order typed
    scale_given = OmegaConf.select(config, "train.scale", throw_on_missing=False) is not None
    config = OmegaConf.merge(declared_defaults(Recipe), config)  # 4. fill in the declared defaults
    values, broken = _resolve(config)  # 5. resolve every interpolation now
    problems += unknown + broken + _alpha_to_scale(values.get("train"), scale_given)  # 6. one number for alpha / rank
    recipe, found = _read(values, cwd, {problem.where for problem in unknown})  # 7. check and convert
    if recipe is not None:
        found += _template_problems(recipe.scenario, cwd)
    already = {problem.where for problem in problems}
    problems += [problem for problem in found if problem.where not in already]
    if problems or recipe is None:
        raise RecipeError(problems)
    return recipe


def recipe_as_yaml(recipe: Recipe, encoding: str = "utf-8") -> str:
    """The resolved recipe as YAML; as a config.yaml of its own it gives the same recipe again.

    Where `encoding` lacks a sign of it, YAML's escapes are used, so that nothing is lost in a terminal or a file.
    """
    text = yaml.safe_dump(plain(recipe), allow_unicode=True, sort_keys=False, width=120)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return yaml.safe_dump(plain(recipe), allow_unicode=False, sort_keys=False, width=120)
    return text


def template_folder(scenario: ScenarioRecipe, cwd: Path | None = None) -> Path:
    """The scenario's template: a folder of that name under templates/, or the folder at that path."""
    shipped = Path(str(importlib.resources.files("mobilefinetuner.templates"))) / scenario.template
    own = (cwd or Path.cwd()) / Path(scenario.template).expanduser()
    for folder in (shipped, own):
        if (folder / "rules.json").is_file():
            return folder
    known = sorted(child.parent.name for child in shipped.parent.glob("*/rules.json"))
    found = f"{scenario.template!r} is no folder with a rules.json"
    raise UserError("scenario.template", found, f"{', '.join(known)}, or the path of such a folder")


def _template_problems(scenario: ScenarioRecipe, cwd: Path) -> list[UserError]:
    try:
        template_folder(scenario, cwd)
    except UserError as error:
        return [error]
    return []


def shipped_configs() -> Path:
    """The configuration tree that comes with the package."""
    return Path(str(importlib.resources.files("mobilefinetuner.configs")))


def _existing_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise UserError("--config-dir", f"there is no folder {str(folder)!r}", "a folder laid out like configs/")
    return folder.resolve()


def _is_path(choice: str) -> bool:
    return choice.endswith((".yaml", ".yml"))


def _unknown_choices(chosen: Overrides, folders: list[Path], cwd: Path) -> list[UserError]:
    """Group choices for which there is no file."""
    problems = []
    for group, choice in chosen.groups.items():
        known = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
        if _is_path(choice):
            if not (cwd / Path(choice).expanduser()).is_file():
                problems.append(UserError(group, f"there is no file {choice!r}", f"{', '.join(sorted(known))}, or a YAML file"))
        elif choice not in known:
            problems.append(unknown_word(group, choice, group, known, f"{group}={{}}"))
    return problems


def _compose(chosen: Overrides, folders: list[Path], cwd: Path) -> DictConfig:
    """What the chosen YAML files say together, without the values from the command line."""
    register_machine_resolver()
    words = [f"{group}={choice}" for group, choice in chosen.groups.items() if not _is_path(choice)]
    search_path = create_config_search_path(None)
    for folder in folders:
        search_path.prepend("mft", f"file://{folder}", anchor="schema")  # Hydra wants its schemas last
    try:
        with _hydra_of(search_path):
            config = compose("config", overrides=words)
        OmegaConf.set_struct(config, False)
        for group, choice in chosen.groups.items():
            if _is_path(choice):
                config[group] = OmegaConf.load(cwd / Path(choice).expanduser())
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise RecipeError([UserError("configuration", _one_line(error), remedy="mend the YAML file that is named")]) from None
    odd = [group for group in GROUPS if not isinstance(config.get(group), DictConfig)]
    if odd:
        raise RecipeError([UserError(group, "the chosen file is no section", "lines of the form KEY: VALUE") for group in odd])
    return config


def _apply(chosen: Overrides, config: DictConfig) -> list[UserError]:
    """Set the values from the command line."""
    problems = []
    for key, value in chosen.values:
        try:
            OmegaConf.update(config, key, value, force_add=True)
        except OmegaConfBaseException as error:
            problems.append(UserError(key, f"{value!r} cannot be set ({_one_line(error)})"))
    return problems


@contextlib.contextmanager
def _hydra_of(search_path: ConfigSearchPath) -> Iterator[None]:
    """Hydra's compose API over these folders only.

    initialize_config_dir() takes one folder, and what `hydra.searchpath` adds comes after it; here own files come first.
    """
    backup = get_gh_backup()
    hydra.version.setbase("1.3")
    Hydra.create_main_hydra2("mft", search_path)
    try:
        yield
    finally:
        restore_gh_from_backup(backup)


def _alpha_to_scale(train: Any, scale_given: bool) -> list[UserError]:
    """Replace `alpha` by scale = alpha / rank, so that one number is stored."""
    alpha = train.pop("alpha", None) if isinstance(train, dict) else None
    if alpha is None:
        return []
    if scale_given:
        return [UserError("train.alpha", "stands beside train.scale, which is alpha / rank", "one of the two")]
    try:
        train["scale"] = float(alpha) / float(train["rank"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return [UserError("train.alpha", f"{alpha!r} over rank {train.get('rank')!r} gives no scale", "a number")]
    return []


def _resolve(node: Any, prefix: str = "") -> tuple[Any, list[UserError]]:
    """Plain values of a configuration with every interpolation replaced, and those that lead nowhere."""
    if not OmegaConf.is_config(node):
        return node, []
    keys = range(len(node)) if OmegaConf.is_list(node) else list(node)
    values, problems = {}, []
    for key in keys:
        where = f"{prefix}{key}"
        try:
            values[key], inner = _resolve(node[key], f"{where}.") if not OmegaConf.is_missing(node, key) else (None, [])
            problems += inner
        except OmegaConfBaseException as error:
            text = cast(Any, OmegaConf.to_container(node, resolve=False))[key]
            problems.append(UserError(where, f"{text!r} cannot be resolved ({_one_line(error)})", "an interpolation of a key that exists"))
    return (list(values.values()) if OmegaConf.is_list(node) else values), problems


def _read(values: dict[str, Any], cwd: Path, unchosen: set[str]) -> tuple[Recipe | None, list[UserError]]:
    """The recipe and what is wrong with it; groups whose file does not exist are not judged by their default."""
    reader = RecipeReader(cwd)
    if unchosen:
        for group in [group for group in GROUPS if group not in unchosen]:
            reader.bind(fields_of(Recipe)[group][1], values.get(group), group)
        return None, reader.problems
    if not values.get("out"):
        values["out"] = _default_out(values)
    return reader.bind(Recipe, values, ""), reader.problems


def _default_out(values: dict[str, Any]) -> str:
    names = [str((values.get(group) or {}).get("name", "")) for group in ("model", "scenario", "device")]
    return "bundles/build/" + "-".join(name.replace("/", "_") for name in names)


def _one_line(error: BaseException) -> str:
    """What an error says, in one line."""
    cause = error.__cause__ if isinstance(error.__cause__, yaml.YAMLError) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip() and not line.strip().startswith(("full_key", "object_type"))]
    return " ".join(lines)
