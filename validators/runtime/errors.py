"""What ends a judgement: the judge that cannot work, and the worker that is gone."""


class JudgeError(Exception):
    """The judge itself cannot work; says nothing about a candidate."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WorkerEndedError(Exception):
    """The worker is gone, was stopped, or broke the protocol; ``reason`` is a code of ``report.REASONS``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
