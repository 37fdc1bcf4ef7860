"""A tuned file is found by the sizes it is for; where none is for them, the nearest is named with what differs."""

import json
from pathlib import Path

from kb.config import Root
from kb.knowledge_base import KnowledgeBase
from kb.service import importing

ASKED = "tuned fused moe config E=256 N=512 fp8 H200"
EXACT = "E=256,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
OTHERS = (
    "E=256,N=512,device_name=NVIDIA_B200,dtype=fp8_w8a8,block_shape=[128,128].json",
    "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
    "E=128,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8.json",
    "E=256,N=512,device_name=NVIDIA_H200.json",
    "E=8,N=14336,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json",
)


def _filed(root: Root, folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir()
    for number, name in enumerate(names, start=1):
        rows = {str(1 << power): {"BLOCK_SIZE_M": 16 * number, "num_warps": 4} for power in range(6)}
        (folder / name).write_text(json.dumps(rows), encoding="utf-8")
    options = importing.options_of(
        format_=None, write=True, stated=("owner/name", "v1", "MIT"), allow=[], device=None, toolchain=[]
    )
    assert importing.run(root, str(folder), options).counts["add"] == len(names)


def test_the_exact_file_comes_first_and_where_there_is_none_the_nearest_is_named(root: Root, tmp_path: Path) -> None:
    _filed(root, tmp_path / "others", OTHERS)
    with KnowledgeBase(root) as base:
        answer = base.search(ASKED)
        said = " ".join(answer.notes)
        assert "nothing is tuned for just E=256 N=512" in said
        assert f"nearest: {answer.hits[0].id}" in said
        assert "which differs: " in said
        assert "tuned for just these sizes" not in str(answer.hits[0].why)
    _filed(root, tmp_path / "exact", (EXACT,))
    with KnowledgeBase(root) as base:
        answer = base.search(ASKED)
        assert answer.hits[0].id == "config/fused_moe/vllm-e256-n512-fp8-w8a8-128-128-nvidia-h200"
        assert "nothing is tuned" not in " ".join(answer.notes)
        assert "tuned for just these sizes" in str(answer.hits[0].why)
