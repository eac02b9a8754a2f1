"""`client-config`: what a client needs to know, of the deployment that runs."""

import json

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.receipts import running
from cluster.app.session import OpenNode, Session
from cluster.errors import Refused
from cluster.model.events import Emit, ExportReport, Severity, Told
from cluster.model.settings import Settings
from cluster.plan.client import Form, Served, hints, snippet
from cluster.plan.launch import api_url, key_file

LIMIT = 10.0


def client_config(settings: Settings, open_one: OpenNode, emit: Emit, form: Form) -> ExportReport:
    """Asks the server: a snippet that was true of another start would send clients to nobody."""
    with Session(settings, open_one) as session:
        head = session.head
        settings = running(head, settings)
        want = {"url": f"{api_url(settings)}/v1/models", "limit": LIMIT, "key_file": key_file(settings)}
        answer = json.loads(told(head, head.run(agent("models", want, LIMIT + 15))))
    if not answer["models"]:
        raise Refused(
            "the API names no model",
            where=api_url(settings),
            evidence=(answer["error"],) if answer["error"] else (),
            fix="sparkctl status",
        )
    first = answer["models"][0]
    for hint in hints(settings):
        emit(Told(Severity.NOTE, hint))
    return ExportReport(str(form), settings.deployment, snippet(settings, Served(first["id"], first["context"]), form))
