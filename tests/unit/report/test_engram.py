"""What a person sees of packed files and of how fast their rows come."""

from cluster.model.engram import EngramBenchReport, EngramReport, PackedFile, PackedState, RowStream, TablesFolder
from cluster.report.engram import bench_lines, bench_picture, engram_lines

FILE = PackedFile("spark-a", 0, 1, "/rows/engram-l1-r0of2.bin", 50_688_463_456, "/e/s", PackedState.PACKED, 512.0)
STREAM = RowStream(
    "spark-a", 0, 14, "io_uring", "text", "prefill", 12_288, 95_000.0, 55_000.0, 0.58, 1.68, 128.0, 140.0, 175.0, 180.0
)


def words(lines) -> list[str]:
    return [" ".join("".join(span.text for span in line).split()) for line in lines]


def test_each_file_is_told_with_its_pace():
    right = PackedFile("spark-b", 1, 1, "/rows/engram-l1-r1of2.bin", 2**30, "/e/s", PackedState.RIGHT, 3.0)
    report = EngramReport(
        "dsv41", True, False, (FILE, right), (TablesFolder("spark-a", "/slim", True, ("config.json",)),)
    )
    assert words(engram_lines(report, None)) == [
        "dsv41 packed 1 of 2 files, the others were right",
        "packed spark-a /rows/engram-l1-r0of2.bin layer 1, rank 0, 47.2 GiB, 8 min 32 s, 94.4 MiB/s",
        "right spark-b /rows/engram-l1-r1of2.bin layer 1, rank 1, 1.0 GiB",
        "linked spark-a /slim config.json",
    ]


def test_what_is_wrong_is_told_in_its_own_words():
    bad = PackedFile(
        "spark-a", 0, 1, "/rows/x.bin", 9, "/e/s", PackedState.WRONG, 0.0, "ABSENT", "x.bin does not exist"
    )
    assert words(engram_lines(EngramReport("dsv41", False, True, (bad,)), None)) == [
        "dsv41 not every packed file is right",
        "wrong spark-a /rows/x.bin x.bin does not exist",
    ]
    assert words(engram_lines(EngramReport("dsv41", True, False, ()), None)) == ["dsv41 nothing to do"]


def test_rows_per_second_are_a_table_and_a_picture():
    report = EngramBenchReport("dsv41", (STREAM,))
    engine, _, row = words(bench_lines(report, None))
    assert engine == "spark-a: io_uring"
    assert row == "spark-a 14 text prefill 12288 95,000 55,000 1.68 128.00 ms 175.00 ms 180.00 ms"
    picture = bench_picture(report)
    assert picture.startswith("<svg ")
    assert "spark-a, layer 14, text, prefill" in picture
    assert "95,000" in picture
