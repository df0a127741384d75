"""What `--help` shows below the options: examples, and the exit codes."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "tilewright run model.py:forward --check",
        "tilewright run model.mlir --shapes 'f32[8,128]' --memory bytes",
    ),
    "report": (
        "tilewright report model.py:forward --target ascend-310",
        "tilewright report model.py:forward --json | jq .microseconds",
        "tilewright report model.py:forward --shapes 'f32[b,128]' --at b=4",
        "tilewright report model.py:forward --shapes 'f32[b,s,64]' --at b=4 --sweep s=1..2048 --plot sweep.svg",
    ),
    "verify": (
        "tilewright verify model.py:forward",
        "tilewright verify model.py:forward --bisect -o small.mlir",
        "tilewright verify model.tw --shapes N=8 --against model.py:forward",
        "tilewright verify model.twm --against model.py:forward",
    ),
    "reduce": (
        "tilewright reduce model.mlir --check crash",
        "tilewright reduce model.mlir --command 'grep -q gather {}'",
    ),
    "debug": (
        "tilewright debug model.py:forward",
        "tilewright debug model.py:forward -c 'break exp; run; print %5; who %5'",
        "tilewright debug mutant.mlir -c 'run; waits'",
    ),
    "trace": ("tilewright trace model.py:forward -o trace.json",),
    "compile": (
        "tilewright compile model.py:forward --emit tile",
        "tilewright compile model.mlir --schedule base_m=64 -o out.mlir",
    ),
    "export": (
        "tilewright export model.py:forward --hivm kernels",
        "tilewright export model.py:forward --hivm kernels --check --target ascend-910b3",
    ),
    "fmt": ("tilewright fmt model.tw", "tilewright fmt --check *.tw"),
    "quantize": (
        "tilewright quantize model.py:forward --data batches.npz --metric accuracy -o int8.toml",
        "tilewright quantize model.py:forward --data model.py:batches --search f16,w8a16,w8a8 --max-drop 0.5",
        "tilewright report model.py:forward --quant-config int8.toml --weights params",
    ),
    "tune": (
        "tilewright tune model.py:forward --budget 300s",
        "tilewright tune model.py:forward --objective energy --power-limit 150W --plans plans.sqlite",
        "tilewright report model.py:forward --plans plans.sqlite --plans-for 'energy, 150 W'",
        "tilewright tune model.py:forward --explain",
        "tilewright tune model.py:forward --oracle 'measure {npu} {out}' --verify 20",
    ),
    "checklist": (
        "tilewright checklist model.py:forward",
        "tilewright checklist model.py:forward --only precision,memory --json",
    ),
    "autotune": (
        "tilewright autotune model.py:forward --shapes 'f32[b,64],f32[64,32]' --space batch=1,4,8 precision=f32,f16",
        "tilewright autotune model.py:forward --data batches.npz --space precision=f16,int8 --metric energy",
        "tilewright report model.py:forward --shapes 'f32[b,64],f32[64,32]' --config best_config.json",
    ),
    "serve-sim": (
        "tilewright serve-sim model.py:forward --shapes 'f32[b,128]' --arrivals poisson:2000 --policy batch=8,wait=2ms",
        "tilewright serve-sim model.twm --entry 1=decode1 --entry 8=decode8 --arrivals trace.csv --policy batch=8 "
        "--policy fixed=8 --goal p99=10ms --plot service.html",
    ),
    "inspect": ("tilewright inspect model.twm", "tilewright inspect sealed.twm --key model.key"),
    "tiers": (
        "tilewright tiers model.py:forward --spec tiers.toml -o tiers",
        "tilewright tiers model.py:forward --shapes 'f32[b,64],f32[64,32]' --spec tiers.toml --check off --json",
    ),
    "verify-file": ("tilewright verify-file model.twm --require-signature trusted.pem",),
    "update": ("tilewright update model.twm -o next.twm --values new.npz --sign key.pem",),
    "diff": ("tilewright diff old.twm new.twm", "tilewright diff old.twm new.twm --all --json"),
    "fleet": (
        "tilewright fleet init --db fleet.sqlite --trusted trusted.pem",
        "tilewright fleet add --db fleet.sqlite store-1 --region eu --chip ascend-310p3",
        "tilewright fleet rollout --db fleet.sqlite model.twm --stages 1%,10%,100% --canary canary.npz",
        "tilewright fleet serve --db fleet.sqlite --port 8080",
        "tilewright fleet agent --server http://127.0.0.1:8080 --name store-1 --folder store-1 --trusted trusted.pem",
        "tilewright fleet simulate --devices 1200 --fault latency",
    ),
    "kb": (
        "tilewright kb list",
        "tilewright kb merge plans.sqlite theirs.sqlite",
        "tilewright kb export plans.sqlite -o plans.jsonl",
    ),
    "explain-overflow": (
        "tilewright explain-overflow kernel.mlir --target ascend-910b3",
    ),
    "pack": (
        "tilewright pack buffers.csv -o placed.csv",
        "tilewright pack buffers.csv --capacity 1M --align 512 > placed.csv",
    ),
    "calibrate": ("tilewright calibrate records.json --plot fit.png",),
    "explain": (
        "tilewright explain model.py:forward -o report.html",
        "tilewright explain model.py:forward --shapes 'f32[32,784]' --target ascend-310",
    ),
    "machines": ("tilewright machines", "tilewright machines ascend-910b1 --json"),
    "ops": ("tilewright ops --target ascend-310", "tilewright ops exponential dot_general"),
    "cache": ("tilewright cache ~/.cache/tilewright", "tilewright cache --clear"),
    "completion": (
        'eval "$(tilewright completion bash)"',
        "tilewright completion zsh > ~/.zfunc/_tilewright",
        "tilewright completion fish > ~/.config/fish/completions/tilewright.fish",
    ),
}

EXIT_CODES = (
    "exit codes: 0, 1 after an error or a failed check, 3 after one that judged nothing, 130 when interrupted"
)


def texts(name: str) -> dict[str, Any]:
    """Arguments of a command's parser: its examples and the exit codes, laid out as they are."""
    examples = EXAMPLES.get(name, ())
    lines = ["examples:", *(f"  {e}" for e in examples), "", EXIT_CODES] if examples else [EXIT_CODES]
    return {"epilog": "\n".join(lines), "formatter_class": argparse.RawDescriptionHelpFormatter}
