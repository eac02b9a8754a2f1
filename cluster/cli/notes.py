"""What stands at the end of each verb's --help: examples and exit codes, as they are written here."""

NOTES = {
    "compose": """
Examples
  sparkctl compose --rank 1 > worker.yaml
""",
    "image": """
Examples
  sparkctl image ls
  sparkctl image ship --json

Exit codes
   0  done                    4  refused: no room, or the nodes differ
   3  unreachable, host key   5  a step failed
""",
    "start": """
Examples
  sparkctl start                      what .env and cluster.yaml say
  sparkctl start --recipe demo --venv ~/vllm --model ~/models/demo
  sparkctl start --set MAX_NUM_SEQS=8 --set EXTRA_ARGS='--seed 7'

Exit codes
   0  serving                 5  a step failed      10  hung
   2  usage or settings       6  a rank died        11  out of time
   3  unreachable, host key   7  another sparkctl  130  interrupted
   4  refused by a check         is at work
""",
    "stop": """
Exit codes
   0  all is gone, or nothing was there    7  another sparkctl is at work
   3  cannot tell: a node does not answer  12  something still runs
   5  a step failed
""",
    "restart": """
Exit codes
  Those of stop and of start.
""",
    "status": """
Examples
  sparkctl status --watch --every 2
  sparkctl status --json | jq -r .state

Exit codes
   0  serving                 9  absent       3  cannot tell
   8  loading or degraded    10  hung         2  usage or settings
""",
    "logs": """
Examples
  sparkctl logs -f                    both ranks, until Ctrl-C
  sparkctl logs --rank 1 --since 10min --grep 'WARN|ERROR'

Exit codes
   0  shown
   3  the node of a rank did not answer; the others were shown
   9  there are no logs
""",
    "smoke": """
Exit codes
   0  the right answer
   3  the head cannot be reached
   5  another answer, or none
""",
    "plan": """
Examples
  sparkctl plan --recipe demo --venv ~/vllm --model ~/models/demo
  sparkctl plan --json
""",
    "preflight": """
Examples
  sparkctl preflight --only FABRIC        every check of the fabric
  sparkctl preflight --explain FABRIC.GID what it looks at, and why
  sparkctl preflight --fix HOST.MIN_FREE  and --undo HOST.MIN_FREE takes it back

Exit codes
   0  nothing refuses         3  a node cannot be reached
   2  usage or settings       4  a check refuses
""",
    "fabric": """
Examples
  sparkctl fabric test
  sparkctl fabric test --json | jq .measured[].gbps

Exit codes
   0  every way was measured, and each is healthy
   5  one is slow, failed, or could not be measured
   3  a node cannot be reached
""",
    "doctor": """
Exit codes
   0  the bundle is written, and nothing refuses
   4  the bundle is written, and a check refuses
""",
    "fit": """
Examples
  sparkctl fit --set MAX_MODEL_LEN=300000
  sparkctl fit --json | jq .nodes[].needed

Exit codes
   0  fits, or may fit        4  a start would be refused
   3  unreachable, host key   2  usage or settings
""",
    "bench": """
Examples
  sparkctl bench chat --requests 32 --at-once 4
  sparkctl bench engram --plot rows.svg
  sparkctl bench engram --json --text book.txt | jq .streams[].rows_per_s

Exit codes
   0  measured                4  there is no packed file
   2  usage or settings       5  a node could not measure; a question failed
   3  unreachable, host key
""",
    "pack": """
Examples
  sparkctl pack                       every layer, on all nodes at once
  sparkctl pack --check               read all of it, and compare
  sparkctl pack --layer 14 --gentle   one layer, beside a server that answers

Exit codes
   0  all files are right     4  refused, or a check found something
   2  usage or settings       5  a file could not be made
   3  unreachable, host key   7  another sparkctl is at work
""",
    "config": """
Examples
  sparkctl config --origin            what is set, and where
  sparkctl config --all --json        everything, for a program
""",
    "init": """
Examples
  sparkctl init spark@192.168.1.12    this node is the head
  sparkctl init spark-b               a Host of ~/.ssh/config
  sparkctl init                       one machine: the demo
""",
    "fetch": """
Examples
  sparkctl fetch                      what HF_MODEL_REPO and HF_ENGRAM_REPO name
  sparkctl fetch --offline            lists gaps; asks nobody, changes nothing

Exit codes
   0  all is there, proven    5  the hub fails, or files came wrong
   2  no such repository      7  somebody else changes the folder
   4  no room; or gaps, with --offline
""",
    "verify": """
Examples
  sparkctl verify                     every byte that was not proven before
  sparkctl verify --quick             headers and sizes only

Exit codes
   0  nothing is wrong        4  a file is missing, partial or wrong
   3  unreachable             5  a folder could not be read
""",
    "share": """
Examples
  sparkctl share                      as WEIGHT_SYNC says
  sparkctl share --backend nfs
  sparkctl share --detach

Exit codes
   0  shared and proven, or taken back    4  refused; nothing was done
   3  unreachable                         5  a step failed; share goes on
   7  another sparkctl is at work
""",
    "weights": """
Examples
  sparkctl weights                    what lies where, and who needs it
  sparkctl weights pin /data/models/old --reason "to compare with"
  sparkctl weights prune              what would go; --yes removes it

Exit codes
   0  done, or told           5  a folder could not be changed
   3  unreachable             7  another sparkctl is at work
""",
    "relay": """
Examples
  sparkctl relay ~/models/pack --report            how it is aligned
  sparkctl relay ~/models/pack ~/models/pack-a64 --parts 12
  sparkctl relay ~/models/pack /data/pack-a64 --dry-run

Exit codes
   0  all is in place         4  refused, nothing changed
   2  usage, no such folder   5  a file failed
   8  --report: too much would be copied
""",
    "inspect": """
Examples
  sparkctl inspect ~/models/pack
  sparkctl inspect ~/models/pack --k-map exl3_k_map.json --json | jq .problems

Exit codes
   0  sound                   4  something is wrong, or a shard is damaged
   2  usage, no such folder
""",
    "packconfig": """
Examples
  sparkctl packconfig ~/models/pack --dry-run
  sparkctl packconfig ~/models/pack --route b

Exit codes
   0  repaired, or already right
   2  usage, no such folder, no config.json
   4  refused: mixed widths in a layer, no EXL3 experts, a damaged shard
""",
    "coalesce": """
Examples
  sparkctl coalesce ~/models/tp4 ~/models/tp1
  sparkctl coalesce --check ~/models/tp1

Exit codes
   0  joined; --check: sound  4  refused; --check: a file is not what it was
   2  usage, no such folder   5  a file failed, or slices differ that must not
""",
    "draft": """
Examples
  sparkctl draft ~/models/tp1 ~/models/draft-k64 \\
    --plan ~/models/tp1/REAP_K216_PLAN.json

Exit codes
   0  made                    4  refused: TARGET is there, the pack is not whole
   2  usage, too few experts  5  the file failed
""",
    "patch": """
Examples
  sparkctl patch status vllm-deepseek-v4 --venv ~/vllm
  sparkctl patch apply vllm-deepseek-v4 --venv ~/vllm
  sparkctl patch apply ./mine.yaml --root /opt/vllm/vllm
  sparkctl patch revert vllm-deepseek-v4 --venv ~/vllm

Exit codes
   0  done; status: patched   4  refused, nothing changed; status: drifted
   2  usage, no such set      8  status: partly patched
   9  status: not patched
""",
    "client-config": """
Examples
  sparkctl client-config > ~/.pi/agent/models.json
  eval "$(sparkctl client-config --for env)"

Exit codes
   0  printed                 3  the head cannot be reached
   2  usage                   4  the API names no model: it does not run
""",
    "export": """
Examples
  sparkctl export k8s --node spark-a | kubectl apply -f -
  sparkctl export k8s --recipe dsv41-sage-exl3-1x --node spark-a > sage.yaml

Exit codes
   0  printed
   2  usage, or something is missing: all of it is named
""",
    "completion": """
Examples
  eval "$(sparkctl completion bash)"
  eval "$(sparkctl completion zsh)"
  sparkctl completion fish > ~/.config/fish/completions/sparkctl.fish
""",
}
