"""A probed profile is one the compiler accepts. The machines are laid out as /proc and /sys of a Pixel 6, a Raspberry Pi 5 and an old
phone show them; the benchmark runs a compiled bundle on this machine."""

from __future__ import annotations

import json
import os
import platform
import struct
from pathlib import Path

import pytest
import yaml
from mobilefinetuner.compiler.recipe.cpu_targets import known_features
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.runtime.bundle.cpu_features import HWCAP2_NAMES, HWCAP_NAMES
from mobilefinetuner.runtime.cli import main
from mobilefinetuner.runtime.probe.core_benchmark import Benchmark, Measurement
from mobilefinetuner.runtime.probe.machine import read_machine
from mobilefinetuner.runtime.probe.profile import ARM_FEATURES, device_profile, profile_yaml

A76 = [
    "fp",
    "asimd",
    "evtstrm",
    "aes",
    "pmull",
    "sha1",
    "sha2",
    "crc32",
    "atomics",
    "fphp",
    "asimdhp",
    "cpuid",
    "asimdrdm",
    "lrcpc",
    "dcpop",
    "asimddp",
]
MACHINES = {
    "pixel-6": dict(features=A76, kinds=["0xd05"] * 4 + ["0xd0b"] * 2 + ["0xd44"] * 2, capacity=[124] * 4 + [427] * 2 + [1024] * 2,
                    khz=[1803000] * 4 + [2253000] * 2 + [2802000] * 2, total_kb=7_900_000, free_kb=3_000_000),
    "newer": dict(features=[*A76, "i8mm", "bf16", "sve", "sve2"], kinds=["0xd80"] * 2 + ["0xd82"], capacity=[250] * 2 + [1024],
                  khz=[2000000] * 2 + [3300000], total_kb=11_000_000, free_kb=5_000_000),
    "old": dict(features=["fp", "asimd", "evtstrm", "aes", "crc32"], kinds=["0xd03"] * 4, capacity=[None] * 4, khz=[None] * 4,
                total_kb=1_800_000, free_kb=300_000),
}  # fmt: skip


@pytest.fixture
def machine(request, tmp_path, monkeypatch):
    facts = MACHINES[request.param]
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(platform, "node", lambda: "Phone of Ann")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(len(facts["kinds"]))))
    (tmp_path / "proc" / "self").mkdir(parents=True)
    words = [sum(1 << bit for bit, name in enumerate(names) if name in facts["features"]) for names in (HWCAP_NAMES, HWCAP2_NAMES)]
    (tmp_path / "proc/self/auxv").write_bytes(struct.pack("=QQQQQQ", 16, words[0], 26, words[1], 0, 0))
    lines = [f"processor\t: {n}\nCPU implementer\t: 0x41\nCPU part\t: {kind}\n" for n, kind in enumerate(facts["kinds"])]
    (tmp_path / "proc/cpuinfo").write_text("\n".join(lines))
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {facts['total_kb']} kB\nMemAvailable: {facts['free_kb']} kB\n")
    for core, (capacity, khz) in enumerate(zip(facts["capacity"], facts["khz"])):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}"
        (folder / "cpufreq").mkdir(parents=True)
        if capacity:
            (folder / "cpu_capacity").write_text(f"{capacity}\n")
            (folder / "cpufreq/cpuinfo_max_freq").write_text(f"{khz}\n")
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("skin\n")
    (zone / "temp").write_text("31200\n")
    return read_machine(tmp_path)


@pytest.mark.parametrize("machine", ["pixel-6"], indirect=True)
def test_cores_are_grouped_by_capacity_with_the_fastest_first(machine):
    assert [(c.kind, c.cores, c.capacity, c.max_mhz) for c in machine.clusters] == [
        ("Cortex-X1", (6, 7), 1024, 2802), ("Cortex-A76", (4, 5), 427, 2253), ("Cortex-A55", (0, 1, 2, 3), 124, 1803),
    ]  # fmt: skip
    assert machine.sensors == ("thermal skin",)


@pytest.mark.parametrize(
    ("machine", "cpu", "threads", "budget_mb"),
    [("pixel-6", "cortex-a76", 2, 1440), ("newer", "cortex-a78", 1, 2432), ("old", "generic", 4, 128)], indirect=["machine"],
)  # fmt: skip
def test_the_profile_follows_from_what_the_kernel_reports(machine, cpu, threads, budget_mb):
    profile = device_profile(machine)
    assert (profile["cpu"], profile["threads"], profile["memory_budget_mb"]) == (cpu, threads, budget_mb)
    assert not {"sve", "sve2"} & set(profile["features"]) and set(profile["features"]) <= machine.cpu.features


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_the_compiler_accepts_every_profile(machine, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(profile_yaml(machine))
    device = load_recipe([f"device={file}"]).device
    assert device.name == "phone_of_ann" and device.cores == len(machine.cores) and device.arch == "aarch64"


@pytest.mark.parametrize("machine", ["pixel-6"], indirect=True)
def test_fewer_threads_are_chosen_when_more_bring_next_to_nothing(machine):
    def measured(*speeds: float) -> Benchmark:
        threads = tuple(Measurement(tuple(range(n + 1)), speed, speed) for n, speed in enumerate(speeds))
        return Benchmark("1x32", threads[:3], threads)

    assert device_profile(machine, measured(10, 19, 28, 28.5, 22))["threads"] == 3
    assert device_profile(machine, measured(10, 7))["threads"] == 1
    assert "3: 28.00" in profile_yaml(machine, measured(10, 19, 28, 28.5, 22))


def test_only_features_that_the_compiler_knows_are_ever_listed():
    assert set(ARM_FEATURES) <= set(known_features("aarch64"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    from tests.support.tiny_bundle import compile_tiny_bundle, write_tiny_model

    folder = tmp_path_factory.mktemp("probe")
    return compile_tiny_bundle(folder / "bundle", write_tiny_model(folder / "tiny.gguf"), "train.buckets=[1x64]", "scenario.window_tokens=64")


def test_probe_measures_this_machine_and_writes_a_profile_that_compiles(bundle, tmp_path, capsys):
    assert main(["probe", "--bundle", str(bundle), "--json", "--seconds", "0.01", "--output", str(tmp_path / "here.yaml")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert all(m["calls_per_second"] > 0 and m["gflops"] > 0 for m in document["benchmark"]["threads"])
    written = yaml.safe_load((tmp_path / "here.yaml").read_text())
    assert written == document["profile"]
    assert load_recipe([f"device={tmp_path / 'here.yaml'}"]).device.threads == document["profile"]["threads"]
    assert not (bundle.parent / "bundle-workspace").exists()


def test_probe_answers_for_a_bundle_of_another_machine_without_measuring(bundle, capsys, monkeypatch):
    monkeypatch.setattr("mobilefinetuner.runtime.verbs.probe.read_machine", lambda: _foreign(read_machine()))
    assert main(["probe", "--bundle", str(bundle), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["benchmark"] is None and "not measured" in err


def _foreign(machine):
    import dataclasses

    from mobilefinetuner.runtime.bundle.cpu_features import MachineCpu

    return dataclasses.replace(machine, cpu=MachineCpu("aarch64", frozenset({"fp", "asimd"})))


def test_an_output_that_the_compiler_would_not_take_for_a_file_is_refused(bundle, tmp_path, capsys):
    assert main(["probe", "--bundle", str(bundle), "--seconds", "0", "--output", str(tmp_path / "profile")]) == 2
    assert ".yaml" in capsys.readouterr().err and not (tmp_path / "profile").exists()
