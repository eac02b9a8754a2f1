"""`python3 -m spark_exl3`: listen at once, load the model, answer. It ends with 1 when the engine fails."""

import os
import sys
from collections.abc import Callable
from ipaddress import ip_address
from threading import Thread

from spark_exl3.api import Served, Server
from spark_exl3.chat import template
from spark_exl3.engine import Engine, Model, State
from spark_exl3.options import Options, Unusable, options

USAGE = 2


def main(argv: list[str], load: Callable[[Options], Model] | None = None) -> int:
    """`load` makes the model in the engine's thread; ExLlamaV3's unless another is given."""
    try:
        chosen = options(argv, os.environ)
        form = template(chosen.model, chosen.template)
    except (Unusable, OSError) as error:
        return _end(USAGE, str(error))

    def served(server: Server) -> Served:
        engine = Engine(
            lambda: (load or _exllama)(chosen), chosen.waiting, lambda: Thread(target=server.shutdown).start()
        )
        return Served(chosen.name, chosen.context, chosen.key, form, engine)

    try:
        server = Server((chosen.host, chosen.port), served)
    except OSError as error:
        return _end(1, f"cannot listen on {chosen.host} port {chosen.port}: {error.strerror}")
    _say(f"loading {chosen.model} as {chosen.name}; chat template: {form.source}")
    if not chosen.key and not _is_loopback(chosen.host):
        _say(f"warning: {chosen.host} port {chosen.port} answers everybody who reaches it: there is no API key")
    server.served.engine.start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 130
    finally:
        server.server_close()
    return int(server.served.engine.state is State.FAILED)


def _exllama(chosen: Options) -> Model:
    from spark_exl3.exllama import Exllama

    return Exllama(chosen)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _say(text: str) -> None:
    print(f"spark_exl3: {text}", file=sys.stderr, flush=True)


def _end(code: int, text: str) -> int:
    _say(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
