"""Foreign text is made harmless, and tables keep their columns."""

import pytest

from cluster.report.layout import (
    Span,
    Tone,
    advice,
    cells,
    clean,
    command,
    grid,
    hanging,
    labelled,
    line,
    paint,
    shorten,
    wrap,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;a title\x07kept", "kept"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1bP1$r\x1b\\dcs", "dcs"),
        ("half an escape \x1b", "half an escape \\x1b"),
        ("bell\x07 back\x08 null\x00", "bell\\x07 back\\x08 null\\x00"),
        (" 10%|#\r 50%|##\r100%|###\r\n", "100%|###\n"),
        ("ends as on Windows\r", "ends as on Windows"),
        ("a\tb", "a   b"),
        ("left \u202etfel", "left \\u202etfel"),
        ("bad byte \udc80", "bad byte \\udc80"),
        ("日本 ünï", "日本 ünï"),
        ("[bold]stays[/bold]", "[bold]stays[/bold]"),
    ],
)
def test_nothing_foreign_reaches_the_terminal_as_a_command(text, shown):
    assert clean(text) == shown


def test_a_line_is_painted_only_when_asked():
    one = line("a ", Span("b", Tone.BAD), Span("", Tone.GOOD))
    assert (paint(one, color=False), paint(one, color=True)) == ("a b", "a \x1b[1;31mb\x1b[0m")


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0)])
def test_width_is_counted_in_columns(text, columns):
    assert cells(text) == columns


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…"), ("ab cd", 4, "ab…"), ("a", 0, "")],
)
def test_text_is_cut_to_its_width(text, width, shown):
    assert shorten(text, width) == shown


def test_a_pipe_gets_long_lines_whole():
    assert wrap("x " * 100 + "\nb", None) == ["x " * 100, "b"]


def test_a_terminal_gets_lines_that_fit():
    assert wrap("aaaa bbbb cccc dddd eeee\n\nsecond", 20) == ["aaaa bbbb cccc dddd", "eeee", "", "second"]


def shown(lines):
    return [paint(one, color=False) for one in lines]


def test_columns_line_up_and_empty_ones_are_left_out():
    rows: list[tuple[str | Span, ...]] = [("0", "", "running"), ("10", "", Span("日本", Tone.GOOD))]
    assert shown(grid(("rank", "pid", "state"), rows)) == ["  RANK  STATE", "  0     running", "  10    日本"]


def test_wide_characters_keep_the_next_column_in_place():
    assert shown(grid(("", ""), [("日本", "a"), ("x", "b")])) == ["  日本  a", "  x     b"]


def test_a_table_of_nothing_is_nothing():
    assert grid(("a", "b"), [("", ""), ("", "")]) == []


def test_the_last_column_wraps_under_itself():
    rows = [("id", "one two three four five six seven")]
    assert shown(grid(("", ""), rows, width=30, wrapped=True)) == ["  id  one two three four five", "      six seven"]


def test_a_label_stands_before_its_text():
    assert shown(labelled("seen", "aaaaaaaaaa bbbbbbbbbb cccc", 32)) == [
        "  seen    aaaaaaaaaa bbbbbbbbbb",
        "          cccc",
    ]


def test_a_sentence_after_a_mark_hangs():
    assert shown(hanging(Span("✓ "), "one two three four five six", 20)) == ["✓ one two three", "  four five six"]


def test_a_long_command_goes_on_as_a_shell_lets_it():
    words = ["A='1 2'", "vllm", "serve", "/m", "--port", "8888"]
    assert shown(command(Span("  $ "), words, 24)) == [
        "  $ A='1 2' vllm \\",
        "      serve /m --port \\",
        "      8888",
    ]
    assert shown(command(Span("  $ "), words, None)) == ["  $ A='1 2' vllm serve /m --port 8888"]


def test_a_word_longer_than_the_line_stays_whole():
    assert shown(command(Span("$ "), ["run", "x" * 30], 20)) == ["$ run \\", "    " + "x" * 30]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("set PORT to another", ["set PORT to another"]),
        (
            "plug the cable in, at both ends; then `ip -br link show eth9` says LOWER_UP",
            ["plug the cable in, at both ends;", "then `ip -br link show eth9` says LOWER_UP"],
        ),
        (
            "sudo swapoff -a && sudo swapon -a   (before a boot); none: sudo fallocate -l 16G /swapfile",
            ["sudo swapoff -a && sudo swapon -a", "(before a boot);", "none: sudo fallocate -l 16G /swapfile"],
        ),
        ("on b: sudo ufw allow from " + "10.40.0.1 " * 6, ["on b: sudo ufw allow from " + "10.40.0.1 " * 6]),
        ("words " * 12, ["words words words words words words words", "words words words words words"]),
    ],
)
def test_advice_is_wrapped_but_for_what_is_typed(text, rows):
    said = shown(advice("try", text, 52, Tone.GOOD))
    assert [one[10:] for one in said] == [row.rstrip() for row in rows]
