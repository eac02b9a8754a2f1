from cluster.agent.rank import unit_argv

FOLDER = "/home/spark/$x/deployments/demo/boots/b1/rank0"
RUN = ["/usr/bin/python3", "-IS", "/state/agent/rank-0.py", "run", FOLDER]


def test_a_unit_ends_in_order_and_survives_a_death_by_memory():
    argv = unit_argv("sparkctl-demo-rank0-b1", "user", RUN, {"HOME": "/home/spark", "SPARKCTL_RANK_DIR": FOLDER})
    assert argv == [
        "systemd-run",
        "--user",
        "--unit=sparkctl-demo-rank0-b1",
        "--description=sparkctl-demo-rank0-b1",
        "--collect",
        "--quiet",
        "--property=Type=exec",
        "--property=KillMode=mixed",
        "--property=OOMPolicy=continue",
        "--property=TimeoutStopSec=45",
        "--property=TasksMax=infinity",
        "--setenv=HOME=/home/spark",
        "--setenv=SPARKCTL_MANAGER=user",
        f"--setenv=SPARKCTL_RANK_DIR={FOLDER}",
        "--setenv=SPARKCTL_UNIT=sparkctl-demo-rank0-b1",
        "/usr/bin/python3",
        "-IS",
        "/state/agent/rank-0.py",
        "run",
        FOLDER.replace("$", "$$"),  # systemd puts variables in
    ]


def test_only_root_asks_for_limits():
    limits = {"--property=LimitMEMLOCK=infinity", "--property=LimitNOFILE=1048576"}
    assert limits <= set(unit_argv("u", "system", RUN, {}))
    assert not limits & set(unit_argv("u", "user", RUN, {}))
