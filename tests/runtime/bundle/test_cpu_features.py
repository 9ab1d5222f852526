"""The processor as its kernel describes it. The texts are excerpts of real /proc files."""

import platform
import struct
import subprocess

import pytest
from mobilefinetuner.runtime.bundle.cpu_features import MachineCpu, features_of_cpuinfo, read_machine_cpu

RASPBERRY_PI_5 = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd0b
"""


def test_features_are_read_from_an_arm64_cpuinfo():
    features = features_of_cpuinfo(RASPBERRY_PI_5)
    assert {"asimd", "fphp", "asimdhp", "asimddp", "lrcpc"} <= features and "i8mm" not in features


def test_a_feature_that_one_core_lacks_is_not_a_feature():
    assert features_of_cpuinfo("flags\t\t: avx avx2 fma\n\nflags\t\t: avx fma\n") == {"avx", "fma"}


def test_without_a_flags_line_nothing_is_claimed():
    assert features_of_cpuinfo("Hardware: something\n") == frozenset()


def auxv(**values):
    return b"".join(struct.pack("=QQ", key, value) for key, value in values["pairs"])


@pytest.mark.parametrize("surplus", [b"", b"\x01" * 7], ids=["whole", "torn"])
def test_on_arm64_the_auxiliary_vector_decides(tmp_path, monkeypatch, surplus):
    # HWCAP of a Cortex-A76: bits of arch/arm64/include/uapi/asm/hwcap.h; HWCAP2 with I8MM (1<<13) and BF16 (1<<14)
    hwcap = sum(1 << bit for bit in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 20))
    (tmp_path / "self").mkdir()
    content = auxv(pairs=[(6, 4096), (16, hwcap), (26, 1 << 13 | 1 << 14), (0, 0)])
    (tmp_path / "self" / "auxv").write_bytes(content + surplus)
    (tmp_path / "cpuinfo").write_text("Features : sve\n")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    machine = read_machine_cpu(tmp_path)
    expected = features_of_cpuinfo(RASPBERRY_PI_5) | {"i8mm", "bf16"}
    assert machine == MachineCpu("aarch64", expected)


def test_where_proc_cannot_be_read_no_feature_is_claimed(tmp_path):
    assert read_machine_cpu(tmp_path).features == frozenset()


def test_this_machine_has_what_lscpu_says():
    try:
        listed = subprocess.run(["lscpu"], capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout
    except FileNotFoundError:
        pytest.skip("there is no lscpu here")
    flags = next((line.split(":", 1)[1].split() for line in listed.splitlines() if line.startswith("Flags:")), None)
    if flags is None:
        pytest.skip("lscpu lists no flags here")
    assert read_machine_cpu().features == set(flags)
