"""The frame of campaigns, with trials that fail, hang and die on purpose."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
from child import environment

SCRIPT = """
import os
import time

import campaign


def trial(rng, number):
    drawn = int(rng.integers(1000))
    if number == {first} + 2:
        raise ValueError("wrong on purpose")
    if number == {first} + 4:
        time.sleep(60)
    if number == {first} + 6:
        os.abort()
    if number == {first} + 8:
        assert os.getcwd() != {cwd!r}
        with open({log!r}, "a") as f:
            print(number, drawn, file=f)
        time.sleep(60)
    word = "even" if number % 2 == 0 else "odd"
    return word if number < 5000 else (word, number - 4999)


if __name__ == "__main__":
    campaign.main(trial, seconds=1)
"""

CUT_OFF = """
import subprocess
import time
from pathlib import Path

import campaign


def trial(rng, number):
    if number == 0:
        Path("old").touch()
        subprocess.run(["chattr", "+i", "old"], stderr=subprocess.DEVNULL)
        return "made"
    time.sleep(60)


def undo(folder):
    print("undoes", *[p.name for p in folder.iterdir()])
    print(folder, flush=True)
    subprocess.run(["chattr", "-i", folder / "old"], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    campaign.main(trial, seconds=60, undo=undo)
"""


def run(script: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A script, and where it writes what it drew."""
    folder = tmp_path_factory.mktemp("campaign")
    script, log = folder / "purpose.py", folder / "drawn.txt"
    script.write_text(SCRIPT.format(first=10, cwd=str(Path.cwd()), log=str(log)))
    return script, log


def test_every_defect_is_told_with_the_command_that_repeats_it(made: tuple[Path, Path]) -> None:
    script, _ = made
    done = run(script, "--seed", 7, "--from", 10, "--to", 17)
    assert done.returncode == 1, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("defect: ")]
    assert [line.rpartition("purpose.py ")[2] for line in told] == [f"--seed 7 --trial {k}" for k in (12, 14, 16)]
    assert "wrong on purpose" in done.stdout
    assert "runs for more than 1 s" in done.stdout
    assert "ended its process: SIGABRT" in done.stdout
    assert "time.sleep(60)" not in done.stdout  # a hang is told with its stack, on stderr
    assert "in trial" in done.stderr
    last = done.stdout.splitlines()[-1]
    assert last == "purpose: seed 7, trials 10..17: 4 odd, 1 even, 3 defects"

    again = run(script, "--seed", 7, "--trial", 12)
    assert again.returncode == 1
    assert again.stderr.endswith("ValueError: wrong on purpose\n")


def test_a_trial_depends_on_seed_and_number_alone(made: tuple[Path, Path]) -> None:
    script, log = made
    log.unlink(missing_ok=True)
    run(script, "--seed", 7, "--from", 17, "--to", 18)
    run(script, "--seed", 7, "--from", 18, "--to", 18)
    first, second = log.read_text().splitlines()
    assert first == second


def test_without_a_defect_the_code_is_0(made: tuple[Path, Path]) -> None:
    done = run(made[0], "--seed", 3, "--from", 1000, "--to", 3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "purpose: seed 3, trials 1000..3000: 1001 even, 1000 odd, 0 defects\n"


def test_calls_are_added_up(made: tuple[Path, Path]) -> None:
    done = run(made[0], "--seed", 3, "--from", 5000, "--to", 5003)
    assert done.stdout == "purpose: seed 3, trials 5000..5003: 2 even, 2 odd, 10 calls, 0 defects\n"
    again = run(made[0], "--seed", 3, "--trial", 5002)
    assert again.stdout == "even, 3 calls\n"


def test_it_ends_when_its_time_does(made: tuple[Path, Path]) -> None:
    done = run(made[0], "--seconds", 0.5, "--seed", 3, "--from", 1000)
    assert done.returncode == 0, done.stderr


def test_it_tells_its_counts_when_it_is_stopped(made: tuple[Path, Path]) -> None:
    command = [sys.executable, str(made[0]), "--seed", "3", "--from", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as child:
        time.sleep(2)
        child.terminate()
        told = child.communicate(timeout=60)[0]
    assert told.startswith("purpose: seed 3, trials 1000..")
    assert told.endswith("0 defects\n")


def test_what_a_trial_that_was_cut_off_left_is_taken_back(tmp_path: Path) -> None:
    """An immutable file, where root may make one, keeps neither the folder nor changes the exit status."""
    script = tmp_path / "cut_off.py"
    script.write_text(CUT_OFF)
    done = run(script, "--seconds", 1)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0] == "undoes old"
    assert not Path(told[1]).exists()
    assert told[2].endswith("1 made, 0 defects")


def test_a_campaign_that_ends_no_trial_has_a_defect(made: tuple[Path, Path]) -> None:
    """Its first trial sleeps for longer than twice the time of the campaign."""
    done = run(made[0], "--seconds", 0.2, "--seed", 3, "--from", 14)
    assert done.returncode == 1, done.stdout
    assert "--from 14\n  no trial ended in 0.4 s" in done.stdout
    assert done.stdout.endswith("purpose: seed 3, trials 14..13: 1 defect\n")


def test_every_campaign_is_run_on_one_of_two_days() -> None:
    days = runpy.run_path(str(Path(__file__).with_name("__main__.py")))
    names = [p.stem for p in days["scripts"]()]
    first, second = (days["today"](names, seed) for seed in (20261124, 20261125))
    assert set(first) | set(second) == set(names)
    assert set(first) & set(second) == {"graphs"}
    assert abs(len(first) - len(second)) <= 1
    left, shares = 300.0, []
    for k, name in enumerate(first):
        shares.append(days["share"](name, first[k + 1 :], left))
        left -= shares[-1]
    assert left == pytest.approx(0, abs=1e-9)
    assert shares[first.index("graphs")] >= 0.2 * 300
    assert min(shares) >= 20
