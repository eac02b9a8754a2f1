"""`.env` is parsed and never run; what readers take differently is refused with its line."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.config.dotenv import Dotenv, Entry, parse, quote
from cluster.model.table import Caution, Problem

FOUR_GRAMMARS = b"""export HF_TOKEN=tok_abc
A="two words"
B=3 # note
C=abc#def
D='x$FOO'
E=~/model
F={"method":"dspark","num_speculative_tokens":3}
G=x;reboot
H=last"""


def test_windows_line_ends_and_a_byte_order_mark_are_skipped_and_said_once():
    parsed = parse(b"\xef\xbb\xbfWORKER_HOST=10.40.0.2\r\n\r\nGID=auto\r\n")
    assert parsed == Dotenv(
        (Entry("WORKER_HOST", "10.40.0.2", 1), Entry("GID", "auto", 3)),
        (),
        (
            Caution("bom", ".env:1", "starts with a byte order mark, which is skipped; save it without"),
            Caution("crlf", ".env:1", "has Windows line ends, which are skipped; save it with Unix ones"),
        ),
    )


def test_a_file_that_four_readers_take_differently_is_read_where_they_agree():
    parsed = parse(FOUR_GRAMMARS)
    assert parsed.values == {
        "HF_TOKEN": "tok_abc",
        "A": "two words",
        "B": "3",
        "C": "abc#def",
        "D": "x$FOO",
        "E": "~/model",
        "H": "last",
    }
    assert parsed.problems == (
        Problem(".env:7", 'F has a `"` that readers take differently', "put the value in single quotes"),
        Problem(".env:8", "G has a `;`, at which a shell would do something", "put the value in single quotes"),
    )
    assert parsed.cautions == ()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=", ""),
        ("A=   ", ""),
        ("A= # note", ""),
        ("A=#v", "#v"),
        ("A=3# n", None),
        ('A="3" # n', "3"),
        ("A='3'\t# n", "3"),
        ("  A=x  ", "x"),
        ("export   A=x", "x"),
        ("A=pre$X", "pre$X"),
        ("A=pa$$word", "pa$$word"),
        ('A="x$X"', "x$X"),
        (r'A="a \"b\" \\ \$ \`"', 'a "b" \\ $ `'),
        ("A='a \"b\" \\n'", 'a "b" \\n'),
        ("A='{\"image\":100}'", '{"image":100}'),
        ("A=^lo,docker0", "^lo,docker0"),
        ("A=ü", "ü"),
    ],
)
def test_a_line_on_which_readers_agree_has_this_value(line, value):
    parsed = parse(line.encode())
    if value is None:
        assert parsed.entries == ()
        assert [problem.where for problem in parsed.problems] == [".env:1"]
    else:
        assert (parsed.values, parsed.problems) == ({"A": value}, ())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("X = 5", "X has a blank before `=`"),
        ("X =5", "X has a blank before `=`"),
        ("X= 5", "X has a blank after `=`"),
        ("X", "X has no `=`"),
        ("X=two words", "X has more than one word"),
        ("X=it's", "X has a `'` that readers take differently"),
        ("X='it", "X has a quote that does not end on its line"),
        ('X="it', "X has a quote that does not end on its line"),
        ("X='a'b", "X goes on after its closing quote"),
        ("X='a'#b", "X goes on after its closing quote"),
        (r"X=b\s", "X has a `\\` that readers take differently"),
        (r'X="a\nb"', "X has a backslash that readers take differently"),
        ("X=$(id -u)", "X has a command in it, which a shell would run"),
        ('X="$(id)"', "X has a command in it, which a shell would run"),
        ("X=`id`", "X has a ```, at which a shell would do something"),
        ("X=a&b", "X has a `&`, at which a shell would do something"),
        ("; comment", "does not start with a name"),
        ("1X=2", "does not start with a name"),
        ("X=a\x00b", "has a control character in it"),
    ],
)
def test_a_line_that_readers_take_differently_is_refused_with_its_number(line, what):
    parsed = parse(f"A=1\n{line}\nB=2\n".encode())
    assert parsed.values == {"A": "1", "B": "2"}
    assert [(problem.where, problem.what) for problem in parsed.problems] == [(".env:2", what)]


def test_bytes_that_are_no_utf8_are_refused_with_their_line():
    assert parse(b"A=1\nB=\xff\n").problems == (Problem(".env:2", "is not UTF-8", "save the file as UTF-8"),)


def test_no_message_repeats_a_value():
    lines = (
        b"HF_TOKEN = hf_secret\nHF_TOKEN= hf_secret\nHF_TOKEN='hf_secret'x\nhf_secret\nHF_TOKEN=hf_secret hf_secret\n"
    )
    texts = [str(problem).replace("hf_secret has no", "") for problem in parse(lines).problems]
    assert len(texts) == 5
    assert not [text for text in texts[:3] + texts[4:] if "hf_secret" in text]


def test_a_dollar_outside_single_quotes_is_kept_and_said():
    text = "A keeps its `$` as it is written, for nothing is expanded; single quotes say so"
    assert parse(b"A=$HOME/x\n").cautions == (Caution("dollar", ".env:1", text),)


def test_the_same_name_with_two_values_is_refused_with_both_lines():
    parsed = parse(b"PORT=1\nX=2\nPORT=3\n", "my.env")
    assert parsed.problems == (
        Problem("my.env:3", "PORT stands on lines 1 and 3, with two values", "remove one of them"),
    )


def test_the_same_line_twice_is_only_said():
    parsed = parse(b"PORT=1\nPORT=1\n")
    assert parsed.problems == ()
    assert parsed.cautions == (Caution("duplicate", ".env:2", "PORT stands on lines 1 and 2, with the same value"),)


_VALUES = st.text(st.characters(exclude_categories=("Cc", "Cs"))) | st.text("ab '\"\\$`#;~{}()= \t")


@given(_VALUES)
@example('it\'s "quoted" \\ `x` $(y) #z')
@example("~/model")
@example("a\tb")
def test_a_quoted_value_is_read_back_as_it_was(value):
    parsed = parse(f"A={quote(value)} # note\nB=1\n".encode())
    assert (parsed.values, parsed.problems) == ({"A": value, "B": "1"}, ())


@given(st.sampled_from([chr(code) for code in (*range(32), 127) if code != 9]))
def test_a_control_character_cannot_be_written(char):
    with pytest.raises(ValueError, match="control character"):
        quote(f"a{char}b")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_exception(data):
    assert isinstance(parse(data), Dotenv)
