"""A device profile's cpu is one that LLVM knows, and implies nothing that the profile does not list."""

from __future__ import annotations

import pytest
from mobilefinetuner.compiler.library.cpu_check import check_device_cpus
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.runtime.errors import UserError

A76 = "[fp,asimd,crc32,atomics,asimdrdm,fphp,asimdhp,asimddp,lrcpc]"
REFUSED = {
    "unknown": ("cortex-a761", A76, "not known to LLVM.*cortex-a76"),
    "features left out": ("cortex-a76", "[fp,asimd]", "crc32, atomics, asimdrdm, fphp, asimdhp, asimddp, lrcpc"),
    "newer than any feature name": ("oryon-1", A76, "newer than Armv8.2a"),
}


@pytest.mark.parametrize(
    "device", ["host", "generic_x86_64", "generic_armv8", "generic_armv8_2", "pixel_6", "pixel_8", "galaxy_s24", "xiaomi_14", "raspberry_pi_5"]
)
def test_the_shipped_profiles_pass(device):
    check_device_cpus(load_recipe([f"device={device}"]).device)


@pytest.mark.parametrize("case", REFUSED)
def test_a_cpu_that_is_unknown_or_needs_more_than_is_listed_is_refused(case):
    cpu, features, words = REFUSED[case]
    device = load_recipe(["device=generic_armv8_2", f"device.cpu={cpu}", f"device.features={features}"]).device
    with pytest.raises(UserError, match=words) as refused:
        check_device_cpus(device)
    assert refused.value.where == "device.cpu" and "\n" not in str(refused.value)
