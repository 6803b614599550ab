"""The environment and code blocks of a record."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

from dare.results import environment as env


def test_environment_describes_this_process():
    found = env.environment()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"]["numpy"] == version("numpy")
    assert json.loads(json.dumps(found)) == found


def test_commit_is_the_checkouts(root):
    head = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    state = env.git_state()
    if head.returncode:
        assert state is None
    else:
        assert state["commit"] == head.stdout.strip()
        assert state["dirty"] == ("diff_sha256" in state)


def test_code_identity_follows_the_sources_that_decide_numbers(tmp_path, monkeypatch):
    (tmp_path / "dare" / "results").mkdir(parents=True)
    (tmp_path / "dare" / "sampling").mkdir()
    (tmp_path / "kernels").mkdir()
    monkeypatch.setattr(env, "__file__", str(tmp_path / "dare" / "results" / "environment.py"))
    monkeypatch.setattr(env, "tree", lambda name: tmp_path / name)
    source = tmp_path / "dare" / "sampling" / "decode.py"
    source.write_text("a = 1\n")
    first = env.numerics_sha256()
    (tmp_path / "dare" / "results" / "stats.py").write_text("not a number\n")
    (tmp_path / "dare" / "sampling" / "notes.md").write_text("prose\n")
    assert env.numerics_sha256() == first
    source.write_text("a = 2\n")
    second = env.numerics_sha256()
    (tmp_path / "kernels" / "triton.py").write_text("k = 1\n")
    assert len({first, second, env.numerics_sha256()}) == 3


def test_the_result_modules_import_nothing_heavy():
    code = (
        "import sys\n"
        "import dare.results.rundir, dare.results.stats, dare.results.verdict\n"
        "import dare.results.expectation, dare.results.compare, dare.cli.verdict\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'pandas', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
