"""Which slow tests of examples, benchmarks and pages a commit runs."""

import subprocess

import pytest

from tests.checks import sampled


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository of two commits, the second of which changed an example."""
    monkeypatch.delenv("EVERYTHING", raising=False)
    monkeypatch.setenv("CHANGED_SINCE", "HEAD^")
    monkeypatch.setattr(sampled, "ROOT", tmp_path)
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]

    def git(*arguments):
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for text in ("one", "two"):
        (tmp_path / "examples").mkdir(exist_ok=True)
        (tmp_path / "examples" / "demo.py").write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", text)
    return git


def anew():
    return sampled.sample.__wrapped__()


def test_the_hash_chooses_the_framework_and_the_difference_the_files(repository):
    parity = int(sampled.git("rev-parse", "HEAD"), 16) % 2
    assert anew() == (("pyro", "numpyro")[parity], ("examples/demo.py",))


@pytest.mark.parametrize("what", ["tag", "change", "variable", "short history", "no repository"])
def test_everything_runs(repository, monkeypatch, tmp_path, what):
    if what == "tag":
        repository("tag", "v1")
    elif what == "change":
        (tmp_path / "examples" / "demo.py").write_text("three")
    elif what == "variable":
        monkeypatch.setenv("EVERYTHING", "1")
    elif what == "short history":
        monkeypatch.delenv("CHANGED_SINCE")
    else:
        monkeypatch.setattr(sampled, "ROOT", tmp_path / "missing")
    assert anew() is None


@pytest.mark.parametrize("chosen", ["pyro", "numpyro"])
def test_the_other_framework_and_unchanged_files_are_left_out(chosen):
    other = {"pyro": "numpyro", "numpyro": "pyro"}[chosen]
    changed = ("examples/demo.py",)
    assert not sampled.is_left_out("test_examples.py", f"test_demo[{chosen}]", chosen, changed)
    assert sampled.is_left_out("test_examples.py", f"test_demo[{other}]", chosen, changed)
    assert sampled.is_left_out("test_benchmarks.py", f"test_it[{chosen}]", chosen, changed)
    assert not sampled.is_left_out("test_rules.py", f"test_it[{other}]", chosen, changed)
    library = ("moment_calculus/errors.py",)
    assert not sampled.is_left_out("test_benchmarks.py", f"test_it[{chosen}]", chosen, library)


def test_all_files_are_there():
    folder = sampled.ROOT / "tests" / "project"
    assert [name for name in sampled.READ if not (folder / name).is_file()] == []
