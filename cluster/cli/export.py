"""The verbs that print a deployment for another system: Kubernetes, a client of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cluster.cli.help import Verb
from cluster.cli.shared import shared

if TYPE_CHECKING:
    from cluster.cli.invoke import Call
    from cluster.cli.options import Options


@click.command(cls=Verb, short_help="Print the deployment as objects for Kubernetes.")
@click.argument("form", type=click.Choice(["k8s"]))
@click.option(
    "--node", "nodes", multiple=True, metavar="NAME", help="The node's name there; repeatable, in rank order."
)
@click.option("--namespace", default="default", metavar="NAME", show_default=True, help="Where the objects go.")
@click.option("--claim", default="", metavar="NAME", help="Name of the claim on the weights.  [default: deployment]")
@click.option("--storage", default="400Gi", metavar="SIZE", show_default=True, help="What the claim asks for.")
@shared
def export(options: Options, form: str, nodes: tuple[str, ...], namespace: str, claim: str, storage: str) -> None:
    """Print the deployment as objects of LLMKube, for `kubectl apply -f -`: its model, its service, their volumes.

    Contacts nobody. The weights stay where they are: the folder above MODEL_DIR is claimed on its node and mounted at
    the same path, as links in a pack are absolute. No object limits memory.
    """

    def act(call: Call) -> None:
        from cluster.app.export import kubernetes
        from cluster.plan.kubernetes import Cluster

        call.emit(kubernetes(call.settings, Cluster(nodes, namespace, claim, storage), call.emit))

    from cluster.cli.invoke import run

    run(options, act, starts=False)


@click.command("client-config", cls=Verb, short_help="Print what a client of the API needs to know.")
@click.option("--for", "form", type=click.Choice(["pi", "env"]), default="pi", show_default=True,
              help="Who reads it: pi's models.json, or a shell.")  # fmt: skip
@shared
def client_config(options: Options, form: str) -> None:
    """Print what a client of the API needs to know: its address, the model's id, the context.

    The server is asked first, so what comes out is true of what runs now. A key is never printed.
    """

    def act(call: Call) -> None:
        from cluster.app.client import client_config as ask
        from cluster.plan.client import Form

        call.emit(ask(call.settings, call.open_one, call.emit, Form(form)))

    from cluster.cli.invoke import run

    run(options, act)


VERBS = (client_config, export)
