"""Load an export with the package whose format it is in; run it with the Python that has the package, not with ours.

    python tests/benchmarks/loaders.py flashinfer-bench DIR
    python tests/benchmarks/loaders.py openevolve DIR
    python tests/benchmarks/loaders.py hf-kernels DIR

flashinfer-bench: loads the data set, builds every solution in Python or Triton, builds every reference, and runs
it on the smallest workload of its definition. openevolve: loads every checkpoint below DIR, takes its best program and
adds a child to it. hf-kernels: checks the digests of every build and imports it. None of the packages is one of ours;
all install on a CPU.
"""

import argparse
import importlib
import logging
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def flashinfer_bench(folder: Path) -> Counter[str]:
    """Count what the package's own loader, builder and generator of inputs make of a data set."""
    data = importlib.import_module("flashinfer_bench.data")
    python = importlib.import_module("flashinfer_bench.compile.builders.python_builder").PythonBuilder()
    registry = importlib.import_module("flashinfer_bench.compile.registry").BuilderRegistry.get_instance()
    draw = importlib.import_module("flashinfer_bench.bench.utils").gen_inputs
    found = data.TraceSet.from_path(str(folder))
    counts: Counter[str] = Counter()
    counts["definitions loaded"] = len(found.definitions)
    counts["workloads loaded"] = sum(map(len, found.workloads.values()))
    counts["traces loaded"] = sum(map(len, found.traces.values()))
    for solution in (one for group in found.solutions.values() for one in group):
        counts["solutions loaded"] += 1
        definition = found.definitions.get(solution.definition)
        if definition is not None and str(solution.spec.language.value) in ("python", "triton"):
            python.build(definition, solution)
            counts["solutions built"] += 1
    for name, definition in found.definitions.items():
        run = registry.build_reference(definition)
        counts["references built"] += 1
        rows = sorted(found.workloads.get(name, ()), key=lambda row: sum(row.workload.axes.values()))
        if rows and "NotImplementedError" not in definition.reference:
            counts["references run"] += _runs(run, definition, rows[0].workload, draw)
    return counts


def _runs(run: Any, definition: Any, workload: Any, draw: Any) -> int:  # noqa: ANN401 - of the package
    inputs = draw(definition, workload, device="cpu")
    made = run(*(inputs.values() if isinstance(inputs, dict) else inputs))
    shapes = [tuple(one.shape) for one in (made if isinstance(made, tuple) else (made,))]
    wanted = [tuple(one) for one in definition.get_output_shapes(workload.axes)]
    if shapes != wanted:
        raise SystemExit(f"{definition.name}: shapes {shapes}, stated {wanted}")
    return 1


def openevolve(folder: Path) -> Counter[str]:
    """Count what the package's own database makes of each checkpoint."""
    logging.disable(logging.CRITICAL)
    database = importlib.import_module("openevolve.database")
    settings = importlib.import_module("openevolve.config").DatabaseConfig
    counts: Counter[str] = Counter()
    for programs in sorted(folder.rglob("programs")):
        held = database.ProgramDatabase(settings())
        held.load(str(programs.parent))
        if len(held.programs) != len(list(programs.glob("*.json"))):
            raise SystemExit(
                f"{programs}: {len(held.programs)} programs loaded of {len(list(programs.glob('*.json')))}"
            )
        counts["checkpoints loaded"] += 1
        counts["programs loaded"] += len(held.programs)
        best = held.get_best_program()
        child = database.Program(id="child", code=f"{best.code}\n", parent_id=best.id, metrics={"combined_score": 0.0})
        held.add(child, iteration=1)
        counts["children added"] += "child" in held.programs
    return counts


def hf_kernels(folder: Path) -> Counter[str]:
    """Count the builds whose metadata and digests hold, and that the package's own importer imports."""
    rust = importlib.import_module("kernels._rust")
    load = importlib.import_module("kernels.importer")._import_from_path
    counts: Counter[str] = Counter()
    for place in sorted(folder.glob("*/build/*/metadata.json")):
        metadata = rust.Metadata.read_from_file(place)
        found = rust.Digest.hash_variant(rust.DigestAlgorithm.SHA256, place.parent)
        metadata.digest.validate(found)
        counts["digests valid"] += 1
        counts["builds imported"] += bool(load(place.parent, {}).__all__)
    return counts


LOADERS = {"flashinfer-bench": flashinfer_bench, "openevolve": openevolve, "hf-kernels": hf_kernels}


def main(arguments: list[str]) -> None:
    """Load what the command line names, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=tuple(LOADERS))
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    for name, count in LOADERS[asked.package](asked.folder).items():
        sys.stdout.write(f"{count:>6} {name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
