"""What single log lines mean, and which texts count as the same."""

import pytest

from cluster.plan.faultlines import Blame, Detail, Fault, Force, Hint, signal_text
from cluster.plan.loglines import Marker, Noise, Phase, Plain, classify, message_of, progress_key

WORKER = "(Worker_TP1 pid=16067) INFO 11-30 15:40:32 [default_loader.py:501] "
ERROR = "(Worker_TP0 pid=16532) ERROR 11-30 15:40:37 [multiproc_executor.py:1063] "


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (WORKER + "Loading weights took 0.01 seconds", "Loading weights took 0.01 seconds"),
        ("INFO 11-30 16:53:10 [serve.py:212] Launching", "Launching"),
        ("(EngineCore pid=1) \x1b[32mINFO\x1b[0m 11-30 16:53:10 [core.py:1] up", "up"),
        ("[W1130 15:19:44.228520233 socket.cpp:207] [c10d] x", "[c10d] x"),
        ("[rank1]:[W1130 17:03:03.326968070 TCPStore.cpp:125] [c10d] recvValue", "[c10d] recvValue"),
        ("W1130 15:19:25.444000 15879 torch/_library/triton.py:53] Triton", "Triton"),
        ("[2026-11-30 17:03:02] node1:6978:7079 [0] misc/socket.cc:72 NCCL WARN x", "misc/socket.cc:72 NCCL WARN x"),
        ("2026-11-30T17:03:02.123456Z (APIServer pid=9) INFO:     Started", "INFO:     Started"),
        ("a%\rLoading safetensors:  50% Completed | 1/2", "Loading safetensors:  50% Completed | 1/2"),
        ("plain words", "plain words"),
    ],
)
def test_the_head_of_a_line_is_cut(raw, message):
    assert message_of(raw) == message


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("(APIServer pid=9) INFO 11-30 15:19:25 [api_utils.py:286] non-default args: {'a': 1}", Marker(Phase.CLI_UP)),
        (
            WORKER + "world_size=2 rank=1 local_rank=0 distributed_init_method=tcp://10.0.0.1:29511 backend=nccl",
            Marker(Phase.WAITING, "tcp://10.0.0.1:29511"),
        ),
        (WORKER + "rank 1 in world size 2 is assigned as DP rank 0", Marker(Phase.JOINED)),
        (
            "Loading safetensors checkpoint shards:  46% Completed | 18/39 [01:10<01:20,  3.9s/it]",
            Marker(Phase.LOADING, "46% Completed", 18, 39),
        ),
        (WORKER + "Model loading took 99.5 GiB and 301.2 seconds", Marker(Phase.LOADED)),
        (
            "(EngineCore pid=1) INFO 11-30 15:19:46 [kv.py:1] GPU KV cache size: 262,144 tokens",
            Marker(Phase.KV_SIZED, "262,144 tokens"),
        ),
        (
            "Capturing CUDA graphs (PIECEWISE):  33%|###   | 1/3 [00:00<00:00, 9.1it/s]",
            Marker(Phase.GRAPHS, "(PIECEWISE)", 1, 3),
        ),
        (WORKER + "Kernel JIT monitor activated; monitored", Marker(Phase.READY)),
        ("(APIServer pid=1) INFO:     Application startup complete.", Marker(Phase.HTTP_UP)),
    ],
)
def test_a_marker_says_how_far_the_boot_is(raw, line):
    assert classify(raw) == line


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (
            "ERROR 11-30 16:53:47 [m.py:284] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down",
            Fault("its worker process VllmWorker-1 died: killed by SIGKILL", certain=True),
        ),
        (
            "OSError: [Errno 98] Address already in use",
            Fault("a port it needs is already in use on this node", certain=True),
        ),
        (
            ERROR + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
            Fault("out of memory", certain=True),
        ),
        (
            ERROR + "OSError: [Errno 28] No space left on device: '/dev/shm/x'",
            Fault("no space left on a disk, or in /dev/shm", certain=True),
        ),
        (
            "vllm: error: unrecognized arguments: --frob",
            Fault("vLLM refuses its arguments: unrecognized arguments: --frob", certain=True),
        ),
        (
            "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm",
            Fault("the installation is incomplete: package metadata is missing", certain=True),
        ),
        (
            ERROR + "OSError: Can't load the configuration of '/models/x'. If you were",
            Fault("model files are missing where it looks for them", certain=True),
        ),
        (
            ERROR + "RuntimeError: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.0.2]:1. This",
            Fault("it went away: the connection to it was lost", Blame.PEER),
        ),
        (
            "node0:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer localhost<1>",
            Fault("it went away: NCCL lost the connection to it", Blame.PEER),
        ),
        (
            "node0:1:2 [0] ibvwrap.cc:1 NCCL WARN Call to ibv_modify_qp failed with error No data available errno 61",
            Fault("RDMA refused the connection: the GID index in use is empty", certain=True),
        ),
        ("node0:1:2 [0] x.cc:1 NCCL WARN something never seen", Fault("NCCL: something never seen")),
        (
            '[rank1]:[W1130 17:03:03.3 P.cpp:1826] [PG ID 0] Failed to check the "should dump" flag on TCPStore',
            Fault("it went away: its rendezvous store is gone", Blame.HEAD),
        ),
        (ERROR + "WorkerProc hit an exception.", Fault("its worker process hit an exception", force=Force.SYMPTOM)),
        (
            ERROR
            + "torch.distributed.DistStoreError: Timed out after 41 seconds waiting for clients. 1/2 clients joined.",
            Fault("it had not joined after 41 s", Blame.PEER, certain=True),
        ),
    ],
)
def test_a_fault_says_what_happened_and_whom_it_blames(raw, fault):
    assert classify(raw) == fault


@pytest.mark.parametrize(
    "raw",
    [
        "(EngineCore pid=8) INFO 11-30 15:36:45 [shm.py:871] No available shared memory broadcast block found",
        "(APIServer pid=7) INFO 11-30 15:36:01 [loggers.py:335] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg",
        'INFO:     127.0.0.1:50906 - "GET /health HTTP/1.1" 200 OK',
        "[W1130 15:35:15.873889356 socket.cpp:764] [c10d] The client socket has failed to connect to [::]:1 (errno",
        "[dsv41-mem] tick 120 s MemAvailable=12.3 GiB",
        "",
    ],
)
def test_what_comes_back_by_itself_is_noise(raw):
    assert classify(raw) == Noise()


@pytest.mark.parametrize(
    "raw",
    [
        "WARNING 11-30 15:19:25 [s.py:255] Found ulimit of 20000: can cause `OSError: [Errno 24] Too many open files`.",
        "node0:1:1 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0",
        'node0:1:1 [0] init.cc:9 NCCL WARN Missing "iommu=pt" from kernel command line',
        "(EngineCore pid=9) INFO 11-30 15:19:46 [utils.py:347] Using LBHNC KV cache layout.",
    ],
)
def test_a_harmless_line_accuses_nobody(raw):
    assert classify(raw) == Plain()


def test_an_exception_alone_is_a_detail_and_a_wrong_address_a_hint():
    assert classify("ValueError: bad thing") == Detail("ValueError: bad thing")
    assert classify("x.py:1: UserWarning: Failed to get the IP address, using 0.0.0.0 by default.") == Hint(
        "VLLM_HOST_IP is not set: it advertises 0.0.0.0"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            WORKER + "Loading weights took 0.01 seconds",
            "(Worker pid=2) INFO 12-01 01:02:03 [a.py:9] Loading weights took 7.5 seconds",
        ),
        (
            'INFO:     10.77.0.1:41508 - "POST /v1/x HTTP/1.1" 200 OK',
            'INFO:     10.77.0.1:9 - "POST /v1/x HTTP/1.1" 200 OK',
        ),
        (
            "Loading shards:  50% Completed | 1/2 [00:01<00:01, 1.2s/it]",
            "Loading shards:  50% Completed | 1/2 [00:09<00:09, 9s/it]",
        ),
    ],
)
def test_another_time_pid_port_or_duration_makes_no_new_text(one, other):
    assert progress_key(one) == progress_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Loading shards:  50% Completed | 1/2 [00:01<", "Loading shards:  51% Completed | 1/2 [00:01<"),
        ("experts 12/384 on the device", "experts 13/384 on the device"),
        ("Loading weights", "Model loading"),
    ],
)
def test_a_changed_percentage_or_count_does(one, other):
    assert progress_key(one) != progress_key(other)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("-9", "killed by SIGKILL"),
        ("137", "killed by SIGKILL"),
        ("143", "killed by SIGTERM"),
        ("0", "exit code 0"),
        ("1", "exit code 1"),
        ("-42", "killed by signal 42"),
        ("None", "killed, or crashed (exit code not known)"),
    ],
)
def test_an_exit_code_is_said_in_words(code, text):
    assert signal_text(code) == text
