"""Which RDMA ports a value of NCCL_IB_HCA stands for: NCCL's own small language, and what is wrong with a value."""

from dataclasses import dataclass

from cluster.model.fabric import RdmaPort

MOST = 32  # further names of a list are not read


@dataclass(frozen=True, slots=True)
class Selector:
    """`[^][=]name[:port[:rail[:plane]]],...`: `^` leaves out, `=` wants whole names, else a name is a beginning."""

    excludes: bool
    is_exact: bool
    names: tuple[tuple[str, int | None], ...]

    def takes(self, device: str, port: int) -> bool:
        if not self.names:
            return not self.excludes  # a lone `^` leaves out everything
        return self._matches(device, port) is not self.excludes

    def _matches(self, device: str, port: int) -> bool:
        return any(self.name_fits(one, device, port) for one in self.names)

    def name_fits(self, one: tuple[str, int | None], device: str, port: int) -> bool:
        name, number = one
        fits = device == name if self.is_exact else device.startswith(name)
        return fits and number in (None, port)


@dataclass(frozen=True, slots=True)
class Selection:
    """What NCCL would use, and why that is not what the value says; `problem` is empty when it is."""

    ports: tuple[RdmaPort, ...]
    problem: str = ""
    reason: str = ""


def parse_selector(value: str) -> Selector:
    """As NCCL reads it: nothing is trimmed, an empty name is skipped, the case counts."""
    excludes, rest = value.startswith("^"), value.removeprefix("^")
    is_exact, rest = rest.startswith("="), rest.removeprefix("=")
    names = [_name(word) for word in rest.split(",") if word.partition(":")[0]]
    return Selector(excludes, is_exact, tuple(names[:MOST]))


def _name(word: str) -> tuple[str, int | None]:
    name, separator, rest = word.partition(":")
    port = rest.partition(":")[0]
    return name, int(port) if separator and port.isdigit() else None


def select(value: str, ports: tuple[RdmaPort, ...]) -> Selection:
    """The active ports the value stands for; only those can carry anything."""
    selector = parse_selector(value)
    chosen = tuple(one for one in ports if one.is_active and selector.takes(one.device, one.port))
    problem, reason = _problem(value, selector, ports, chosen)
    return Selection(chosen, problem, reason)


def _problem(
    value: str, selector: Selector, ports: tuple[RdmaPort, ...], chosen: tuple[RdmaPort, ...]
) -> tuple[str, str]:
    if any(char.isspace() for char in value):
        return f"“{value}” has a blank in it, and NCCL does not trim: what follows it names nothing", "blank_in_list"
    if not chosen:
        there = ", ".join(f"{one.device}:{one.port} {one.state}" for one in ports) or "none"
        return f"“{value}” names no active RDMA port of this node; it has {there}", "no_active_port"
    idle = [one for one in selector.names if not any(selector.name_fits(one, p.device, p.port) for p in ports)]
    if idle:
        names = ", ".join(name if port is None else f"{name}:{port}" for name, port in idle)
        return f"{names} of “{value}” is no RDMA port of this node", "unknown_name"
    if not selector.excludes:
        down = [p for p in ports if not p.is_active and selector.takes(p.device, p.port)]
        named = [p for p in down if any(name == p.device for name, _ in selector.names)]
        if named:
            return f"{', '.join(f'{p.device} is {p.state}' for p in named)}: NCCL leaves it out", "port_down"
    return "", ""
