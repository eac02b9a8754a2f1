"""The `sparkctl` command: the group, its version, and exit codes for what click itself refuses."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cluster import __version__
from cluster.cli.commands import VERBS
from cluster.cli.help import Verbs
from cluster.errors import Exit

if TYPE_CHECKING:
    from cluster.app.session import OpenNode

EPILOG = """
Settings, strongest first: options, SPARKCTL_NAME variables, .env, cluster.yaml, the recipe, defaults.
`sparkctl config --origin` shows each value and where it comes from.

\b
First steps
  sparkctl init USER@WORKER     write a first .env
  sparkctl plan                 see what would be done
  sparkctl start                do it, and wait until the model answers
  sparkctl VERB --help          more about one verb

\b
Exit codes
   0  done                     7  another sparkctl is at work
   1  a bug of ours            8  loading or degraded (status)
   2  usage or settings        9  absent (status)
   3  unreachable, host key   10  hung
   4  refused by a check      11  out of time
   5  a step failed           12  something still runs after stop
   6  a rank died            130  interrupted
"""


@click.group(
    cls=Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="sparkctl")
def cli() -> None:
    """Serve models too large for one DGX Spark over two of them.

    sparkctl checks what kills boots before they start, launches one rank of vLLM per node, watches until a token was
    made, and ends everything it started.
    """


for verb in VERBS:
    cli.add_command(verb)


def main(arguments: Sequence[str] | None = None, *, open_one: "OpenNode | None" = None) -> None:
    """Of the process unless `arguments` are given; `open_one` gives other nodes than the real ones."""
    try:
        cli.main(arguments, prog_name="sparkctl", standalone_mode=False, obj=open_one)
    except click.exceptions.Abort:
        sys.exit(Exit.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.SETTINGS)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
