"""``platform-plugin migrate``: what it prints, writes, asks and returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from test_inspector_saved import save
from typer.testing import CliRunner, Result

from udf_compat.inspector import sources
from udf_compat.inspector.command import migrate

MOVES = "from pyspark.sql.functions import udf\n\n\n@udf('int')\ndef f(x):\n    return x\n"
MOVED = MOVES.replace("pyspark.sql", "udf_compat")
CANNOT = "@udf\ndef g(x):\n    return spark.sql(x)\n"


def run(*arguments: str | Path, answer: str | None = None) -> Result:
    app = typer.Typer()
    app.command()(migrate)
    return CliRunner().invoke(app, [str(one) for one in arguments], input=answer)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(MOVES)
    return path


def test_the_table(job: Path) -> None:
    done = run(job)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["where", "name", "kind", "verdict", "why"]
    assert lines[2].split(maxsplit=3) == [f"{job}:5", "f", "row", "moves unchanged  with one changed import"]
    assert "1 moves unchanged, in 1 file." in lines
    assert "--write shows the changes to 1 file" in lines[-1]
    assert job.read_text() == MOVES


def test_status_1_where_something_cannot_move(job: Path) -> None:
    job.write_text(MOVES + CANNOT)
    done = run(job)
    assert done.exit_code == 1
    assert "cannot move" in done.stdout
    assert "1 moves unchanged, 1 cannot move, in 1 file." in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.py", None, "no such file or folder"),
        ("bad.py", b"def f(:\n", ":1: is not Python 3: invalid syntax"),
        ("old.py", b"x = 1\nprint 'x'\n", ":2: is not Python 3: "),
        ("bytes.py", b"x = '\xff'\n", "is not text"),
        ("code.py", b"# coding: klingon\n", "is not text: unknown encoding"),
        ("zero.py", b"x = 1\n\0\n", "is not Python 3: "),
        ("n.ipynb", b"nonsense", "is not JSON"),
    ],
)
def test_status_2_for_what_cannot_be_read_and_the_others_are(
    job: Path, name: str, content: bytes | None, message: str
) -> None:
    path = job.parent / name
    if content is not None:
        path.write_bytes(content)
    done = run(path, job)
    assert done.exit_code == 2
    assert f"{path}" in done.stderr
    assert message in done.stderr
    assert "moves unchanged" in done.stdout
    report = json.loads(run(path, job, "--json").stdout)
    assert [one["name"] for one in report["findings"]] == ["f"]
    assert message.rpartition(": ")[2] in report["problems"][0]["message"]


def test_write_shows_a_diff_and_asks(job: Path) -> None:
    done = run(job, "--write", answer="n\n")
    assert done.exit_code == 0
    assert "-from pyspark.sql.functions import udf\n+from udf_compat.functions import udf\n" in done.stdout
    assert "Nothing was written" in done.stdout
    assert job.read_text() == MOVES
    done = run(job, "--write", answer="y\n")
    assert done.stdout.index("+from udf_compat") < done.stdout.index("Write 1 file?")
    assert job.read_text() == MOVED
    again = run(job, "--write")
    assert again.exit_code == 0
    assert "Nothing to rewrite." in again.stdout
    assert job.read_text() == MOVED


def test_write_without_an_answer_writes_nothing(job: Path) -> None:
    done = run(job, "--write")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert job.read_text() == MOVES


@pytest.mark.parametrize("arguments", [["--yes"], ["--write", "--json"]])
def test_options_that_do_not_go_together(job: Path, arguments: list[str]) -> None:
    done = run(job, *arguments)
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert job.read_text() == MOVES


def test_json_is_all_of_stdout(job: Path) -> None:
    job.write_text(MOVES + CANNOT)
    saved = save(job.parent / "model", "org.apache.spark.ml.feature.Tokenizer", "tok")
    done = run(job.parent, "--json", "--write", "--yes")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["files"] == 2
    assert report["summary"] == {"unchanged": 2, "note": 0, "cannot": 1}
    assert report["problems"] == []
    first, second, third = report["findings"]
    assert first == {
        "file": str(job), "cell": None, "line": 5, "name": "f", "kind": "row", "verdict": "unchanged",
        "why": ["with one changed import"],
    }  # fmt: skip
    assert (second["verdict"], third["file"], third["line"]) == ("cannot", str(saved), None)
    (change,) = report["changes"]
    assert change["written"] is True
    assert change["file"] == str(job)
    assert "+from udf_compat.functions import udf as ray_udf" in change["diff"]
    assert "@ray_udf('int')" in job.read_text()


def test_folders_are_walked_and_what_is_not_the_users_is_left_out(tmp_path: Path) -> None:
    wanted = [tmp_path / "a.py", tmp_path / "deep" / "er" / "b.py"]
    others = [".git/x.py", "env/lib/x.py", "__pycache__/x.py", "node_modules/x.py", "notes.txt"]
    for path in [*wanted, *(tmp_path / other for other in others)]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MOVES)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    save(tmp_path / "model", "org.apache.spark.ml.feature.Tokenizer", "tok")
    (tmp_path / "model" / "inside.py").write_text(MOVES)
    report = json.loads(run(tmp_path, tmp_path / "a.py", "--json").stdout)
    assert [one["file"] for one in report["findings"]] == [*map(str, wanted), str(tmp_path / "model")]


def test_an_empty_folder_is_wrong_use(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 2
    assert "holds no Python file, notebook or saved pipeline" in done.stderr


def test_a_file_without_udfs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    done = run(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "No UDF and no stage in 1 file.\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (MOVES.replace("\n", "\r\n").encode(), MOVED.replace("\n", "\r\n").encode()),
        (b"\xef\xbb\xbf" + MOVES.encode(), b"\xef\xbb\xbf" + MOVED.encode()),
        (b"# coding: latin-1\n# \xe9\n" + MOVES.encode(), b"# coding: latin-1\n# \xe9\n" + MOVED.encode()),
        (MOVES.rstrip().encode(), MOVED.rstrip().encode()),
        (b"x = 1\r\n\f\ny = '\\\r\n'\n" + MOVES.encode(), b"x = 1\r\n\f\ny = '\\\r\n'\n" + MOVED.encode()),
    ],
    ids=["crlf", "bom", "latin-1", "no newline", "mixed"],
)  # fmt: skip
def test_every_other_byte_stays(job: Path, before: bytes, after: bytes) -> None:
    job.write_bytes(before)
    assert run(job, "--write", "--yes").exit_code == 0
    assert job.read_bytes() == after


def test_mode_and_links_stay(job: Path) -> None:
    job.chmod(0o751)
    link = job.parent / "link.py"
    link.symlink_to(job.name)
    assert run(link, "--write", "--yes").exit_code == 0
    assert link.is_symlink()
    assert job.read_text() == MOVED
    assert job.stat().st_mode & 0o7777 == 0o751
    assert sorted(path.name for path in job.parent.iterdir()) == ["job.py", "link.py"]


def test_a_write_that_fails_leaves_the_file_whole_and_is_named(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = job.parent / "other.py"
    other.write_text(MOVES)
    real = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target).name == "job.py":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    done = run(job.parent, "--write", "--yes")
    assert done.exit_code == 2
    assert f"{job}: was not written: No space left on device" in done.stderr
    assert (job.read_text(), other.read_text()) == (MOVES, MOVED)
    assert sorted(path.name for path in job.parent.iterdir()) == ["job.py", "other.py"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(job: Path) -> None:
    read = sources.load(job)
    job.write_text(MOVES + "# more\n")
    with pytest.raises(ValueError, match="changed since it was read"):
        sources.replace(read, MOVED)
    assert job.read_text() == MOVES + "# more\n"


def test_a_read_only_file_is_not_replaced(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write whatever the mode is
    done = run(job, "--write", "--yes")
    assert done.exit_code == 2
    assert "read-only" in done.stderr
    assert job.read_text() == MOVES


def test_the_installed_command_loads_nothing_heavy(job: Path) -> None:
    code = (
        "import sys\nfrom platform_plugin.cli import build_app\n"
        "app = build_app()\nassert 'libcst' not in sys.modules, 'for migrate only'\n"
        f"try:\n    app(['migrate', {str(job)!r}])\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print([n for n in ('ray', 'pyspark', 'py4j', 'vllm', 'torch', 'pandas', 'pyarrow') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "moves unchanged" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
