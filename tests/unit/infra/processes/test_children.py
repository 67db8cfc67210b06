"""Child processes: what they report, and that none outlives its parent. Real processes, really killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra.errors import GO_ON, Cancelled, ChildDied, FailureBudgetExceeded
from shardmill.infra.processes.children import ChildResult, run_child
from shardmill.infra.processes.trees import wait_for_end

CHILD_OF_OURS = "from shardmill.infra import progress\nfrom shardmill.infra.processes import process\n"


def script(tmp_path: Path, body: str) -> list[str]:
    file = tmp_path / "child.py"
    file.write_text(CHILD_OF_OURS + textwrap.dedent(body))
    return [sys.executable, str(file)]


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_events_lines_and_result_arrive(tmp_path: Path) -> None:
    argv = script(
        tmp_path,
        """
        import sys
        def main():
            progress.stage("encode", 10)
            progress.progress("encode", 4, 10)
            progress.metrics(loss=0.5)
            progress.log("café \\ud800", level="warning")
            progress.result({"num_records": 10})
            print("to stdout"); print("to stderr", file=sys.stderr)
            return 0
        sys.exit(process.run_main(main))
        """,
    )
    events: list[Mapping[str, Any]] = []
    lines: list[str] = []
    result = run_child(argv, on_event=events.append, on_line=lines.append, log_path=tmp_path / "log")
    result.raise_for_status()
    assert [event["event"] for event in events] == ["stage", "progress", "metrics", "log", "result"]
    assert events[1]["done"] == 4
    assert events[3]["message"] == "café \ud800"
    assert result.result == {"num_records": 10}
    assert sorted(lines) == ["to stderr", "to stdout"]
    assert sorted((tmp_path / "log").read_text().split("\n")) == ["", "to stderr", "to stdout"]


def test_the_childs_error_is_raised_here(tmp_path: Path) -> None:
    argv = script(
        tmp_path,
        """
        import sys
        from shardmill.infra.errors import FailureBudgetExceeded
        def main():
            raise FailureBudgetExceeded("too many broken files", "raise the budget")
        sys.exit(process.run_main(main))
        """,
    )
    result = run_child(argv)
    assert result.returncode == 3
    with pytest.raises(FailureBudgetExceeded, match="too many broken files") as caught:
        result.raise_for_status()
    assert caught.value.remedy == "raise the budget"
    assert result.last_lines == ["error: too many broken files", "remedy: raise the budget"]


def test_a_defect_keeps_its_traceback(tmp_path: Path) -> None:
    result = run_child(script(tmp_path, "process.run_main(lambda: 1 // 0)"))
    assert result.returncode == 1
    with pytest.raises(ChildDied, match="ZeroDivisionError"):
        result.raise_for_status()


def test_a_killed_child_says_how(tmp_path: Path) -> None:
    result = run_child(script(tmp_path, "import os; print('so far', flush=True); os.kill(os.getpid(), 9)"))
    assert result.returncode == -9
    with pytest.raises(ChildDied, match="killed by SIGKILL; it last said:\nso far") as caught:
        result.raise_for_status()
    assert "memory" in str(caught.value.remedy)


def test_a_command_that_does_not_exist_leaves_no_descriptor(tmp_path: Path) -> None:
    def num_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = num_open()
    with pytest.raises(FileNotFoundError):
        run_child([str(tmp_path / "no-such-program")])
    assert num_open() == before


def test_events_are_not_inherited_by_a_grandchild(tmp_path: Path) -> None:
    argv = script(
        tmp_path,
        """
        import os, subprocess, sys
        def main():
            names = "[name for name in os.environ if name.endswith('_FD')]"
            subprocess.run([sys.executable, "-c", f"import os; print({names})"], check=True)
            return 0
        sys.exit(process.run_main(main))
        """,
    )
    assert run_child(argv).last_lines == ["[]"]


def test_peak_memory_is_of_the_whole_tree(tmp_path: Path) -> None:
    grandchild = "import time; block = bytearray(120 << 20); time.sleep(3)"
    body = f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", {grandchild!r}], check=True)
        """
    result = run_child(script(tmp_path, body))
    assert result.returncode == 0
    assert 120 << 20 < result.peak_memory_bytes < 400 << 20


# A child with a grandchild in a session of its own, which must go too; both ignore SIGTERM.
STUBBORN_FAMILY = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    grandchild = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    progress.adopt_parent()
    progress.result({"pids": [os.getpid(), grandchild.pid]})
    time.sleep(300)
    """


def test_cancel_takes_the_whole_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmill.infra.processes.trees.GRACE_SECONDS", 1.0)
    cancel = threading.Event()
    pids: list[int] = []

    def on_event(event: Mapping[str, Any]) -> None:
        pids.extend(event["result"]["pids"])
        cancel.set()

    with pytest.raises(Cancelled):
        run_child(script(tmp_path, STUBBORN_FAMILY), on_event=on_event, cancel=cancel)
    assert len(pids) == 2
    assert not any(is_running(pid) for pid in pids)


def test_a_polite_child_may_clean_up(tmp_path: Path) -> None:
    argv = script(
        tmp_path,
        f"""
        import sys, time
        from pathlib import Path
        def main():
            progress.log("ready")
            try:
                time.sleep(300)
            finally:
                Path({str(tmp_path / "cleaned")!r}).touch()
        sys.exit(process.run_main(main))
        """,
    )
    cancel = threading.Event()
    with pytest.raises(Cancelled):
        run_child(argv, on_event=lambda event: cancel.set(), cancel=cancel)
    assert (tmp_path / "cleaned").exists()


def test_a_terminated_child_is_cancelled_not_dead() -> None:
    with pytest.raises(Cancelled):
        ChildResult(130, None, None, 0, 0.0).raise_for_status()
    with pytest.raises(Cancelled):
        ChildResult(-signal.SIGTERM, None, None, 0, 0.0).raise_for_status()


def test_a_child_that_ends_well_reports_or_died() -> None:
    assert ChildResult(0, {"made": 1}, None, 0, 0.0).reported() == {"made": 1}
    with pytest.raises(ChildDied, match="finished without returning a result"):
        ChildResult(0, None, None, 0, 0.0).reported()
    with pytest.raises(ChildDied, match="ended with status 3") as caught:
        ChildResult(3, {"made": 1}, None, 0, 0.0).reported()
    assert caught.value.remedy == GO_ON


def test_a_defect_is_to_be_reported_and_not_repeated(tmp_path: Path) -> None:
    argv = script(tmp_path, "raise KeyError('no such key')")
    with pytest.raises(ChildDied, match=r"unexpected exception.*\n(.*\n)*KeyError: 'no such key'") as caught:
        run_child(argv).raise_for_status()
    assert caught.value.remedy == "this is a defect of Shardmill; please report it with the log"


def test_a_killed_parent_takes_its_child_and_grandchild_along(tmp_path: Path) -> None:
    """Parent, child and grandchild each in a session of its own, as flow, prepare and Beam child are."""
    child = tmp_path / "family.py"
    child.write_text(
        textwrap.dedent(
            """
            import os, sys, time
            from pathlib import Path
            from shardmill.infra.processes import children, process
            level, folder = int(sys.argv[1]), sys.argv[2]
            process.follow_parent()
            Path(folder, f"pid{level}").write_text(str(os.getpid()))
            if level:
                children.run_child([sys.executable, __file__, str(level - 1), folder])
            time.sleep(300)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(child), "2", str(tmp_path)])
    files = [tmp_path / f"pid{level}" for level in range(3)]
    assert wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    pids = [int(file.read_text()) for file in files]
    assert all(is_running(pid) for pid in pids)
    parent.kill()
    parent.wait()
    assert wait_until(lambda: not any(is_running(pid) for pid in pids))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_child_whose_library_holds_the_gil_for_ever_dies_with_its_parent(tmp_path: Path) -> None:
    child = (
        "import ctypes, os, sys; from pathlib import Path; from shardmill.infra.processes import process\n"
        "process.follow_parent(); process.die_at_once_with_parent()\n"
        "Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "ctypes.PyDLL(None).sleep(300)\n"
    )
    family = (
        "import sys; from shardmill.infra.processes.children import run_child\n"
        "run_child([sys.executable, '-c', sys.argv[1], sys.argv[2]])"
    )
    note = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", family, child, str(note)])
    assert wait_until(lambda: note.exists() and bool(note.read_text()))
    pid = int(note.read_text())
    assert is_running(pid)
    parent.kill()
    parent.wait()
    assert wait_until(lambda: not is_running(pid))


@pytest.mark.parametrize("knows_pidfd", [True, False])
def test_the_end_of_a_child_is_noticed(knows_pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not knows_pidfd:
        monkeypatch.delattr("os.pidfd_open", raising=False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not wait_for_end(process, 0.05)
        assert process.stdin is not None
        process.stdin.close()
        assert wait_for_end(process, 30.0)
        assert wait_for_end(process, 0.0), "once more"
        assert process.returncode == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of the end of another")
def test_a_process_ends_with_another_process_and_at_once_if_that_has_ended() -> None:
    body = "import sys, time; from shardmill.infra.processes import process\n"
    body += "process.die_with_process(int(sys.argv[1]))\n"
    follower = [sys.executable, "-c", body + "print('follows', flush=True); time.sleep(300)"]
    other = subprocess.Popen(["sleep", "300"])
    with subprocess.Popen([*follower, str(other.pid)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "follows\n"
        assert process.poll() is None
        other.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
    other.wait()
    late = subprocess.run([*follower, str(other.pid)], capture_output=True, text=True, timeout=60)
    assert (late.returncode, late.stdout) == (-signal.SIGKILL, "")
