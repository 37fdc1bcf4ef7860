"""What of a result can show that a kernel is missing: neither zeros nor what fills memory that nobody wrote."""

import pytest
import torch

from kb.validators.runtime.haunting import told_apart


@pytest.mark.parametrize(
    ("expected", "count"),
    [
        (torch.tensor([True] * 9), 0),
        (torch.tensor([False] * 9), 0),
        (torch.tensor([True, False, False, True, True]), 2),
        (torch.tensor([0.0, 1.0, -2.0]), 2),
        (torch.tensor([0, 7, 7, 7], dtype=torch.int32), 3),
        (torch.zeros(0), 0),
    ],
)
def test_only_results_that_unwritten_memory_cannot_hold_count(expected: torch.Tensor, count: int) -> None:
    assert told_apart(expected) == count
