"""What is generated from the table: it can be read back, and the files in the tree are today's."""

from pathlib import Path

from cluster.config import dotenv
from cluster.config.reference import common_table, env_example, settings_page
from cluster.config.texts import env_file_layer
from cluster.model.settings import table
from cluster.model.values import parse, show

ROOT = Path(__file__).parents[3]


def uncommented() -> bytes:
    lines = env_example().splitlines()
    return "\n".join(line[1:] if line[:1] == "#" and line[1:2].isalpha() else line for line in lines).encode()


def test_every_line_of_the_example_can_be_taken_as_it_is_and_changes_nothing():
    parsed = dotenv.parse(uncommented(), ".env.example")
    layer = env_file_layer(parsed, ".env.example", open_to_others=False)
    assert (layer.problems, layer.cautions) == ((), ())
    rows = {row.key: row for row in table()}
    unequal = [
        given
        for given in layer.given
        if show(rows[given.key].default) and parse(rows[given.key], given.raw) != rows[given.key].default
    ]
    assert unequal == []


def test_the_example_has_every_name():
    names = {entry.name for entry in dotenv.parse(uncommented()).entries}
    assert names == {row.meta.env for row in table() if row.meta.env}


def test_the_page_has_every_key_and_the_short_table_the_common_ones():
    page = settings_page()
    assert [row.key for row in table() if f"| `{row.key}` |" not in page] == []
    assert "| `PORT` | `serve.port` | `8888` | 1 to 65535 | Port of the API |\n" in page
    assert "| `PORT` | `serve.port` | `8888` | 1 to 65535 | Port of the API |\n" in common_table()


def test_the_generated_files_are_those_of_today():
    assert (ROOT / ".env.example").read_text() == env_example()
    assert (ROOT / "docs" / "settings.md").read_text() == settings_page()
    readme = (ROOT / "README.md").read_text()
    between = readme.partition("<!-- settings:begin -->")[2].partition("<!-- settings:end -->")[0]
    assert between == f"\n\n{common_table()}\n"
