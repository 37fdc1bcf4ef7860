"""Whole judgements of schemes: real ranks in real sandboxes, over the judge's switch and over gloo."""

import os
import textwrap
import time
from pathlib import Path

import pytest
import torch

from kb.validators import operators
from kb.validators.runtime import processes
from kb.validators.runtime.comm.crew import Crew
from kb.validators.runtime.comm.judging import judge_comm
from kb.validators.runtime.errors import JudgeError
from kb.validators.runtime.report import ACCEPTED, REJECTED, Report
from kb.validators.runtime.workplace import Workplace

pytestmark = pytest.mark.timeout(120)

ENTRIES = Path(__file__).resolve().parents[4] / "entries" / "comm"
ONE_SHOT = (ENTRIES / "all_reduce" / "one-shot" / "scheme.py").read_bytes()
EXCHANGE = '''
import torch
import torch.distributed as dist


def exchange(x, group):
    """Return the tensors of all ranks."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    parts = [x.contiguous() if one == rank else torch.empty_like(x.contiguous()) for one in range(world)]
    works = []
    for peer in range(world):
        if peer != rank and x.numel():
            works.append(dist.isend(parts[rank], group=group, group_dst=peer))
            works.append(dist.irecv(parts[peer], group=group, group_src=peer))
    for work in works:
        work.wait()
    return parts


def added(parts):
    """Add in float32."""
    return torch.stack([part.float() for part in parts]).sum(0).to(parts[0].dtype)
'''


def judged(
    body: str | bytes, *, some: slice = slice(None, None, 5), transport: str | None = None, limit_s: float = 8
) -> Report:
    """Judge an all-reduce at some of its workloads."""
    source = body if isinstance(body, bytes) else (EXCHANGE + textwrap.dedent(body)).encode()
    asked = [one for one in operators.load("all_reduce").workloads if one.use == "awkward"][some]
    return judge_comm(
        "all_reduce",
        source,
        transport=transport,
        workloads=asked,
        calls=(2, 2),
        call_limit_s=limit_s,
        load_limit_s=min(limit_s, 4),
    )


def test_a_scheme_is_accepted_with_its_traffic_on_every_workload() -> None:
    found = judged(ONE_SHOT)
    assert (found.verdict, found.reasons) == (ACCEPTED, ()), found.details
    assert len(found.cases) == 6
    assert found.delegates == ()
    assert all(found.sandbox["verified"][layer] for layer in ("network", "process", "file_read", "signal"))
    assert found.comm is not None
    assert (found.comm["transport"], found.comm["ranks"], found.comm["wire"]) == ("switch", 4, None)
    for row in found.comm["workloads"]:
        axes, dtype = row["workload"]["axes"], getattr(torch, row["workload"]["dtype"])
        world, size = axes["world_size"], axes["num_tokens"] * axes["hidden_size"] * dtype.itemsize
        assert row["sent_bytes"] == world * (world - 1) * size
        assert row["least_bytes"] == 2 * (world - 1) * size
        assert row["busiest_rank_messages"] == (world - 1 if size else 0)
        assert row["slowest_rank_us"] >= row["fastest_rank_us"] > 0


def test_the_slowest_rank_is_the_time_of_a_round() -> None:
    found = judged(
        """
        import time

        def run(x, group):
            y = added(exchange(x, group))
            if dist.get_rank(group) == 1:
                time.sleep(0.04)
            return y
        """
    )
    assert found.verdict == ACCEPTED, found.details
    assert found.comm is not None
    for row in found.comm["workloads"]:
        assert row["slowest_rank_us"] > 40_000
        assert row["slowest_rank_us"] - row["fastest_rank_us"] > 20_000


@pytest.mark.parametrize(
    ("body", "reason", "told"),
    [
        ("raise RuntimeError('no such thing')", "build_failed", "no such thing"),
        ("run = 3", "build_failed", "not callable"),
        ("import time\ntime.sleep(60)", "timed_out", "loading"),
        ("import os\nos._exit(0)", "exited", "code 0"),
        ("WIRE = 'fp8'\nrun = print", "wire_precision", "WIRE must be one of"),
        ("def run(x, group):\n    raise ValueError(dist.get_rank(group))", "crashed", "ValueError"),
        ("def run(x, group):\n    return x if dist.get_rank(group) else None", "wrong_dtype", "NoneType"),
        ("def run(x, group):\n    return x[:0] if dist.get_rank(group) else x", "wrong_shape", "rank"),
        (
            "def run(x, group):\n    y = added(exchange(x, group))\n    x.zero_()\n    return y",
            "input_changed",
            "written to",
        ),
        (
            "def run(x, group):\n    y = added(exchange(x, group))\n    if not dist.get_rank(group):\n"
            "        open(__import__('os').environ['HOME'] + '/left', 'w').write('x')\n    return y",
            "wrote_files",
            "left",
        ),
    ],
)
def test_what_a_rank_does_wrong_is_the_verdict(body: str, reason: str, told: str) -> None:
    found = judged(body)
    assert found.verdict == REJECTED
    assert reason in found.reasons
    assert any(told in detail for detail in found.details), found.details


def test_when_a_rank_fails_the_others_are_told_and_blamed_for_nothing() -> None:
    began = time.monotonic()
    found = judged(
        """
        def run(x, group):
            if dist.get_rank(group) == 1:
                raise KeyError("gone")
            return added(exchange(x, group))
        """,
        some=slice(3, 4),
        limit_s=60,
    )
    assert time.monotonic() - began < 40, "nobody waits for the limit"
    assert found.reasons == ("crashed",)
    assert len(found.details) == 1
    assert "KeyError" in found.details[0]


def test_ranks_that_wait_for_one_another_are_found_before_the_limit() -> None:
    began = time.monotonic()
    found = judged(
        """
        def run(x, group):
            dist.recv(x.clone(), group=group, group_src=(dist.get_rank(group) + 1) % dist.get_world_size(group))
        """,
        some=slice(3, 4),
        limit_s=60,
    )
    assert time.monotonic() - began < 40
    assert found.reasons == ("timed_out",)
    assert "waited for one another" in found.details[0]


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("link._channel.sendall(b'\\xff' * 64)", "forged_protocol"),
        ("[link.send(torch.zeros(1), 0, tag) for tag in range(70000)]", "memory_limit"),
        ("[link._ask(Frame(8, peer=0, second=1 << 24)) for _ in range(64)]", "memory_limit"),
    ],
)
def test_a_rank_that_abuses_the_link_fails_and_the_judge_goes_on(attack: str, reason: str) -> None:
    found = judged(
        f"""
        def run(x, group):
            link = group._link
            Frame = type(link)._ask.__globals__["Frame"]
            {attack}
            return added(exchange(x, group))
        """,
        some=slice(3, 4),
    )
    assert found.verdict == REJECTED
    assert reason in found.reasons, found.details


def test_nothing_runs_any_more_when_the_verdict_is_given() -> None:
    judged(ONE_SHOT, some=slice(3, 4))
    before = set(processes.tree(os.getpid()))
    judged("import time\n\ndef run(x, group):\n    time.sleep(60)", some=slice(0, 1), limit_s=1)
    assert set(processes.tree(os.getpid())) <= before


def test_gloo_ranks_run_the_same_code_and_the_kernel_counts_their_bytes() -> None:
    found = judged(ONE_SHOT, transport="gloo")
    assert (found.verdict, found.reasons) == (ACCEPTED, ()), found.details
    assert found.comm is not None
    assert found.comm["transport"] == "gloo"
    assert found.sandbox["verified"]["network"], "sealed after the ranks have met"
    for row in found.comm["workloads"]:
        axes, dtype = row["workload"]["axes"], getattr(torch, row["workload"]["dtype"])
        world, size = axes["world_size"], axes["num_tokens"] * axes["hidden_size"] * dtype.itemsize
        messages = world * (world - 1)
        assert messages * size <= row["sent_bytes"] <= messages * (size + 512)


def test_gloo_ranks_are_judged_as_strictly() -> None:
    found = judged("def run(x, group):\n    return added(exchange(x.bfloat16(), group)).to(x.dtype)", transport="gloo")
    assert found.verdict == REJECTED
    assert set(found.reasons) & {"wrong_values", "too_few_bytes"}
    found = judged(
        """
        def run(x, group):
            if dist.get_rank(group) == 1:
                import os
                os._exit(0)
            return added(exchange(x, group))
        """,
        transport="gloo",
        some=slice(3, 4),
    )
    assert found.verdict == REJECTED
    assert "exited" in found.reasons


def test_windows_are_had_over_the_switch_alone() -> None:
    source = (ENTRIES / "all_reduce" / "put-signal" / "scheme.py").read_bytes()
    assert judged(source, some=slice(3, 6)).verdict == ACCEPTED
    found = judged(source, some=slice(3, 4), transport="gloo")
    assert found.reasons == ("crashed",)
    assert "one-sided" in found.details[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"device": "cuda", "transport": "nccl"}, "ranks need as many GPUs"),
        ({"transport": "nccl"}, "does not join ranks on cpu"),
        ({"transport": "carrier pigeon"}, "no transport"),
        ({"dtypes": ["int8"]}, "no workload"),
    ],
)
def test_what_cannot_be_had_here_is_an_error_of_the_judge(options: dict[str, str], told: str) -> None:
    if options.get("device") == "cuda" and torch.cuda.device_count() >= 4:
        pytest.skip("there are as many GPUs as ranks")
    with pytest.raises(JudgeError, match=told):
        judge_comm("all_reduce", ONE_SHOT, **options)  # type: ignore[arg-type]


def test_only_communication_is_judged_here() -> None:
    with pytest.raises(KeyError):
        judge_comm("gemm", b"")


def test_no_rank_sees_another_one_or_the_judge() -> None:
    """What a rank can reach of the others: its own sandbox holds for each of them."""
    place = Workplace()
    crew = Crew(b"def run(x, group): ...", place=place, world_size=2, memory_bytes=2 << 30)
    try:
        crew.wait_ready(limit_s=60)
        for worker in crew.workers.values():
            assert worker.layers["verified"]["memory_of_others"]
            assert worker.layers["verified"]["unix_socket"]
        folders = {worker.folder for worker in crew.workers.values()}
        assert len(folders) == 2
        uids = {Path(f"/proc/{worker.pids()[-1]}/status").read_text().split("Uid:")[1].split()[0]
                for worker in crew.workers.values()}  # fmt: skip
        assert len(uids) == 2 or os.getuid() != 0
    finally:
        crew.end()
        place.close()


class EndsWhileLookedAt:
    """A question whose answer arrives between two looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def over(self, limit_s: float = 0.0) -> bool:
        self.looks += 1
        return self.looks > 1

    def failed(self) -> bool:
        return False


def test_a_rank_that_ends_between_two_looks_is_not_waited_for() -> None:
    place = Workplace()
    crew = Crew(b"def run(x, group): ...", place=place, world_size=2, memory_bytes=2 << 30)
    try:
        crew.wait_ready(limit_s=60)
        asked = {0: EndsWhileLookedAt()}
        assert crew._watch(asked, time.monotonic(), 20.0, 3.0) is None  # type: ignore[arg-type]
    finally:
        crew.end()
        place.close()
