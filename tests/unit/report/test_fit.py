"""`fit` as a person reads it, in 80 columns."""

from cluster.model.fit import Amount, Fit, FitNode, FitReport
from cluster.report.fit import fit_lines
from cluster.report.layout import cells, paint

GIB = 2**30


def node(name: str, available: float, fit: Fit = Fit.FITS, **changes) -> FitNode:
    sizes = {"weights": 99.5, "server processes": 2.5, "KV pool": 2.5, "graphs": 1.5, "longest prompt": 2.0}
    left = {"load": available - 107.1, "KV pool": available - 108.6, "graphs": available - 110.1}
    return FitNode(
        node=name,
        fit=fit,
        total=int(121.69 * GIB),
        available=int(available * GIB),
        free=int(90 * GIB),
        needed=int(111.5 * GIB),
        parts=tuple(Amount(part, int(size * GIB)) for part, size in sizes.items()),
        phases=tuple(Amount(phase, int(size * GIB)) for phase, size in left.items()),
        held=(Amount("jupyter", 3 * GIB),),
        tokens=774400,
        **changes,
    )


def text(report: FitReport, width: int | None = 80) -> list[str]:
    return [paint(line, color=False).rstrip() for line in fit_lines(report, width)]


def test_one_column_for_each_node_and_what_is_left_in_each_phase():
    nodes = (node("spark-a", 115.2, measured=int(110.4 * GIB), boot="b1"), node("spark-b", 114.0))
    assert text(FitReport("big", "flash", Fit.FITS, nodes)) == [
        "flash fits   sizes in GiB",
        "                      SPARK-A  SPARK-B",
        "  in all                121.7    121.7",
        "  available             115.2    114.0",
        "  free                   90.0     90.0",
        "    weights              99.5     99.5",
        "    server processes      2.5      2.5",
        "    KV pool               2.5      2.5",
        "    graphs                1.5      1.5",
        "    longest prompt        2.0      2.0",
        "  needed to boot        111.5    111.5",
        "  left after load         8.1      6.9",
        "  left after KV pool      6.6      5.4",
        "  left after graphs       5.1      3.9",
        "  last boot took        110.4",
        "  KV cache, tokens    774 400  774 400",
    ]


def test_a_node_that_is_short_says_why_and_what_could_be_given_up():
    told = "96.2 GiB available, 111.5 GiB needed (99.5 weights + 12.0 margin); held by jupyter (3.0 GiB)"
    short = node("spark-b", 96.2, Fit.SHORT, observed=told, fix="end jupyter (pid 7) on spark-b")
    shown = text(FitReport("big", "flash", Fit.SHORT, (short,), ("SPEC_METHOD=none wins 3.4 GiB: slower answers",)))
    assert shown[0] == "flash does not fit now   sizes in GiB"
    assert shown[-4:] == [
        "  spark-b 96.2 GiB available, 111.5 GiB needed (99.5 weights + 12.0 margin);",
        "          held by jupyter (3.0 GiB)",
        "  try     end jupyter (pid 7) on spark-b",
        "  or      SPEC_METHOD=none wins 3.4 GiB: slower answers",
    ]
    assert max(cells(line) for line in shown) <= 80


def test_many_nodes_stand_below_each_other():
    nodes = tuple(node(f"spark-{number}", 115) for number in range(5))
    shown = text(FitReport("big", "flash", Fit.FITS, nodes))
    assert [line.split() for line in shown if "SPARK" in line] == [
        ["SPARK-0", "SPARK-1", "SPARK-2", "SPARK-3"],
        ["SPARK-4"],
    ]
    assert max(cells(line) for line in shown) <= 80
