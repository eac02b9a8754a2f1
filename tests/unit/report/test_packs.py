"""What a person sees of packs: files, widths, repairs, patches."""

from cluster.model.packs import (
    Component,
    InspectReport,
    LayerWidths,
    Made,
    PackConfigReport,
    PackFile,
    PackReport,
    PatchedFile,
    PatchReport,
    PatchState,
    Width,
)
from cluster.report.layout import paint
from cluster.report.packs import pack_lines

GIB = 2**30


def shown(report) -> str:
    return "\n".join(paint(one, color=False) for one in pack_lines(report, 100))


def test_a_pack_that_was_written():
    files = (
        PackFile("a.safetensors", Made.WRITTEN, GIB, 2.0, "3 of 4 tensors off the grid"),
        PackFile("b.safetensors", Made.KEPT, GIB),
    )
    assert shown(
        PackReport("relay", "/old", "/new", True, True, files, GIB, 2 * GIB, 9 * GIB, notes=("keep /old",))
    ) == (
        "/new ready   1.0 GiB to write, 9.0 GiB free\n"
        "  written  a.safetensors  1.0 GiB  2.0 s  3 of 4 tensors off the grid\n"
        "  kept     b.safetensors  1.0 GiB\n"
        "  note    keep /old"
    )


def test_a_pack_with_nothing_to_do_and_one_that_failed():
    kept, failed = PackFile("a", Made.KEPT, 1), PackFile("b", Made.FAILED, 0, detail="b ends at byte 3")
    assert shown(PackReport("relay", "/o", "/n", True, True, (kept,), 0, 0, 1)).startswith("/n ready, nothing to do\n")
    assert shown(PackReport("relay", "/o", "/n", False, True, (kept, failed), 0, 0, 1)).splitlines()[0] == (
        "/n 1 of 2 files failed"
    )


def test_what_a_pack_holds():
    mixed = LayerWidths(4, 4, "attention", (Width(5, 3, 1), Width(6, 1, 1)))
    report = InspectReport(
        "/pack", False, 2, 9, 3 * GIB, "mul1", 2.5, (Width(2, 3, GIB),),
        (LayerWidths(0, 3, "attention", (Width(5, 4, 1),)), mixed),
        (Component("embedding", GIB, 0),), ("a.w: no suh",),
    )  # fmt: skip
    assert shown(report).splitlines() == [
        "/pack 1 problem   2 files, 9 tensors, 3.0 GiB, EXL3 mul1 2.50 bits",
        "  PART       ON DISK  RESIDENT",
        "  embedding  1.0 GiB  0 B",
        "  K  TENSORS  BYTES",
        "  2  3        1.0 GiB",
        "  LAYERS  KIND       K",
        "  0-3     attention  5",
        "  4       attention  5 (3), 6 (1)",
        "  wrong   a.w: no suh",
    ]


def test_a_repair_shows_its_lines():
    report = PackConfigReport("/pack", "a", True, "/pack/config.json.bak", (("3", "3"),), ("- old", "+ new"))
    assert shown(report) == (
        "/pack repaired for route a\n  bits    3: 3\n  - old\n  + new\n  backup  /pack/config.json.bak"
    )


def test_patches_by_file():
    files = (
        PatchedFile("a.py", PatchState.PATCHED, ("x",), ()),
        PatchedFile("b.py", PatchState.DRIFTED, (), ("y",), detail=("y: its anchor is gone",)),
    )
    assert shown(PatchReport("status", "set", "/venv/p", "1.2", PatchState.DRIFTED, 0, files)) == (
        "set on /venv/p 1.2 drifted\n"
        "  patched  a.py  1 of 1 applied\n"
        "  drifted  b.py  0 of 1 applied\n"
        "      y: its anchor is gone"
    )
