"""The addressing mode of a GPU, from whole answers and from ones that were cut short."""

import pytest

from cluster.probe.addressing import ADDRESSING, parse_addressing
from cluster.probe.base import Answer

HEAD = "==============NVSMI LOG==============\n\nDriver Version : 580.173.02\n\nGPU 0000000F:01:00.0\n"


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (HEAD + "    Addressing Mode                       : ATS\n    MIG Mode : N/A\n", "ATS"),
        (HEAD + "\tAddressing Mode   :   HMM  \n", "HMM"),
        (HEAD + "    Addressing Mode                       : None\n", "None"),
        (HEAD + "    Product Name                          : NVIDIA GB10\n", ""),
        (HEAD + "    Addressing Mo", ""),
        ("", ""),
    ],
)
def test_the_mode_is_the_word_behind_its_key(text, mode):
    assert parse_addressing(text) == mode


def test_without_nvidia_smi_nothing_is_known():
    assert ADDRESSING.read(Answer(None, err="No such file")) is None
