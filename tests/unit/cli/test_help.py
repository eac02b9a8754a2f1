import click
import pytest
from click.testing import CliRunner

from cluster.cli.commands import VERBS
from cluster.cli.main import cli
from cluster.cli.notes import NOTES

NAMES = [str(verb.name) for verb in VERBS]


def help_of(*words: str) -> str:
    result = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80, prog_name="sparkctl")
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("words", [(), *((name,) for name in NAMES)], ids=lambda words: " ".join(words) or "sparkctl")
def test_help_fits_80_columns(words):
    assert [line for line in help_of(*words).splitlines() if len(line) > 80] == []


def test_verbs_are_listed_in_the_order_of_their_use_and_none_is_cut_short():
    shown = help_of().partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split(maxsplit=1) for line in shown.splitlines()] == [[verb.name, verb.short_help] for verb in VERBS]


def test_every_option_of_a_verb_is_in_its_help():
    for verb in VERBS:
        options = [one for one in verb.params if isinstance(one, click.Option)]
        shown = help_of(str(verb.name))
        assert [one.opts for one in options if not all(name in shown for name in one.opts)] == []


def test_notes_belong_to_verbs():
    assert set(NOTES) == set(NAMES)
