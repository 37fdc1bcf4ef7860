"""An interrupt that is not lost: some libraries swallow the exception when it comes while they are being imported."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Remember an interrupt; yields a function that raises it again where it was swallowed.

    Raises:
        KeyboardInterrupt: At the moment of the signal, as always, and at each call of the function after it.
    """
    came = False

    def remember(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    def look() -> None:
        if came:
            raise KeyboardInterrupt

    # Signals come to the main thread alone; and who asked for them to be ignored means it.
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield look
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, usual)
