"""What may be typed as TARGET."""

from __future__ import annotations

from pathlib import Path

import pytest
from mobilefinetuner.compiler.remote.address import Address, parse_address
from mobilefinetuner.runtime.errors import UserError

MEANT = {
    "adb": Address("adb", "", None, "/data/local/tmp/mobilefinetuner"),
    "adb:R5CT10": Address("adb", "R5CT10", None, "/data/local/tmp/mobilefinetuner"),
    "adb:192.168.1.5:5555": Address("adb", "192.168.1.5:5555", None, "/data/local/tmp/mobilefinetuner"),
    "adb:/data/local/tmp/x": Address("adb", "", None, "/data/local/tmp/x"),
    "adb:R5CT10:/data/local/tmp/x/": Address("adb", "R5CT10", None, "/data/local/tmp/x"),
    "adb:192.168.1.5:5555:/data/x": Address("adb", "192.168.1.5:5555", None, "/data/x"),
    "ssh://phone": Address("ssh", "phone", None, "mobilefinetuner"),
    "ssh://u0_a1@192.168.1.5:8022": Address("ssh", "u0_a1@192.168.1.5", 8022, "mobilefinetuner"),
    "ssh://pi@Pi.local/srv/mft": Address("ssh", "pi@Pi.local", None, "/srv/mft"),
    "ssh://pi/~/mft": Address("ssh", "pi", None, "mft"),
    "ssh://[fe80::1]:22/x": Address("ssh", "fe80::1", 22, "/x"),
    "/mnt/phone": Address("path", "", None, "/mnt/phone"),
}
REFUSED = ["adb::/x", "adb:", "ssh://", "ssh://-oProxyCommand=x/y", "ssh://host:99999/x", "ssh://u:secret@host/x", "ssh://host/a/../b",
           "http://host/x", "", "adb:X:/data/\n/x", "ssh://-l@host/x", "ssh://a b/x"]  # fmt: skip


@pytest.mark.parametrize("text", MEANT)
def test_an_address_is_understood(text):
    assert parse_address(text) == MEANT[text]


@pytest.mark.parametrize("text", [text for text in MEANT if text not in ("adb", "ssh://phone")])
def test_an_address_that_is_printed_means_the_same(text):
    assert parse_address(str(parse_address(text))) == parse_address(text)


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_address_is_refused_in_one_line(text):
    with pytest.raises(UserError) as refused:
        parse_address(text)
    assert "\n" not in str(refused.value)


def test_a_folder_is_any_other_word(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parse_address("card/mft").folder == str(Path(tmp_path, "card/mft"))
