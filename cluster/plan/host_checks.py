"""Whether fabric addresses survive a reboot, and whether two nodes are really two machines."""

from collections.abc import Mapping

from cluster.model.events import Finding, Severity
from cluster.model.facts import Identity, NodeFacts
from cluster.plan.launch import Wiring

RUN = "/run/"
NETPLAN = "10-netplan-"  # netplan writes these anew at every boot, from files that stay


def check_owner(facts: NodeFacts, wired: Wiring) -> Finding:
    """What configures the interface of the fabric address, and whether it will do so after a reboot."""
    address = next((one for one in facts.addresses if one.address == wired.address), None)
    if address is None or address.is_loopback:
        return Finding("FABRIC.OWNER", Severity.NOT_CHECKED, facts.node, "the address is not there to be looked at")
    where = f"{wired.address} on {address.interface}"
    if address.by_dhcp:
        fix = "give it a fixed address in /etc/netplan: the settings name this one, and a lease may end"
        return _told(facts, Severity.WARNING, f"{where} comes from DHCP", "a fixed address", fix)
    owner = next((one for one in facts.host.owners if one.interface == address.interface), None)
    if owner is None and not facts.host.managers:
        return Finding("FABRIC.OWNER", Severity.NOT_CHECKED, facts.node, "no network manager was seen")
    if owner is None:
        observed = f"{where} was set by hand: {' and '.join(facts.host.managers)} does not know it"
        return _told(facts, Severity.WARNING, observed, "an address that survives a reboot", _netplan(wired))
    if owner.lost:
        observed = f"{where} belongs to {owner.by}'s connection {owner.file}: {owner.lost}"
        fix = f"sudo nmcli connection modify '{owner.file}' connection.autoconnect yes   (saved, it lies in /etc)"
        return _told(facts, Severity.WARNING, observed, "an address that survives a reboot", fix)
    if owner.file.startswith(RUN) and NETPLAN not in owner.file:
        observed = f"{where} is set by {owner.file}, which a reboot removes"
        return _told(facts, Severity.WARNING, observed, "an address that survives a reboot", _netplan(wired))
    by = f"{owner.by} ({owner.file})" if owner.file else owner.by
    return Finding("FABRIC.OWNER", Severity.OK, facts.node, f"{where} belongs to {by}")


def _netplan(wired: Wiring) -> str:
    return f"write {wired.address} for {wired.interface} into /etc/netplan, then: sudo netplan try"


def _told(facts: NodeFacts, severity: Severity, observed: str, expected: str, fix: str) -> Finding:
    return Finding("FABRIC.OWNER", severity, facts.node, observed, expected, fix)


def check_machines(facts: Mapping[str, NodeFacts], identities: Mapping[str, Identity]) -> tuple[Finding, ...]:
    """Nodes installed from one copied disk share what must be unique."""
    ids = {name: one.machine_id for name, one in identities.items() if one.machine_id}
    boots = {name: one.boot_id for name, one in identities.items() if one.boot_id}
    if len(boots) > 1 and len(set(boots.values())) == 1:
        observed = f"{' and '.join(boots)} are one machine: they have the same boot"
        fix = "name two machines, or give all nodes loopback addresses for a try on one"
        return (Finding("HOST.ONE_MACHINE", Severity.WARNING, "", observed, "a machine for each rank", fix),)
    return (
        _unique(
            "HOST.MACHINE_ID",
            ids,
            "machine id",
            "sudo rm /etc/machine-id && sudo systemd-machine-id-setup   (on one of them, then reboot it)",
        ),
        _unique(
            "HOST.SSH_KEY",
            {name: one.host.host_keys[0] for name, one in facts.items() if one.host.host_keys},
            "ssh host key",
            "sudo rm /etc/ssh/ssh_host_* && sudo ssh-keygen -A   (on one of them; then accept its new key)",
        ),
    )


def _unique(check: str, values: Mapping[str, str], what: str, fix: str) -> Finding:
    if len(values) < 2:  # nothing to compare
        return Finding(check, Severity.NOT_CHECKED, "", f"fewer than two nodes have told their {what}")
    shared = [name for name, value in values.items() if list(values.values()).count(value) > 1]
    if shared:
        return Finding(check, Severity.WARNING, "", f"{' and '.join(shared)} have the same {what}", "its own", fix)
    return Finding(check, Severity.OK, "", f"every node has its own {what}")
