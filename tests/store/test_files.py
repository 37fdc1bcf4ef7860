"""Hostile and broken folders give one line that names file, field, expectation and finding."""

import os
import socket
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.config import Root
from kb.errors import EntryFormatError
from kb.store import content, files

WriteEntry = Callable[..., Path]
ID = "kernel/rmsnorm/row-per-cta"


@pytest.fixture
def folder(root: Root, write_entry: WriteEntry) -> Path:
    return write_entry(root.entries, ID)


def fault(folder: Path, entry_id: str = ID) -> str:
    with pytest.raises(EntryFormatError) as caught:
        files.read(folder, entry_id, shown="entry")
    assert caught.value.hint
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 500
    return caught.value.message


def edit(folder: Path, old: str, new: str) -> None:
    file = folder / "entry.toml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_good_entry_is_read(folder: Path) -> None:
    stored = files.read(folder, ID)
    assert (stored.kind, stored.file.version, stored.names) == ("kernel", 1, ("README.md", "entry.toml", "kernel.py"))
    assert list(stored.candidate) == ["kernel.py"]
    assert stored.facts["title"] == "RMSNorm, one CTA a row"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version = 1", 'version = "1"', 'entry/entry.toml: field version: expected a valid integer, found "1"'),
        ("version = 1", "version = 0", "field version: expected greater than or equal to 1, found 0"),
        ("version = 1", "version = 10000000000000000000000", "field version: expected"),
        ("version = 1\n", "", "field version: expected a value, found none"),
        ('outcome = "works"', 'outcome = "fine"', 'field outcome: expected one of works, regression'),
        ('"bfloat16"', '"bf16"', "field dtypes[0]: expected one of float64"),
        ('arch = ["sm_90"]', 'arch = ["H100"]', "field requires.arch[0]: expected an architecture such as sm_90"),
        ('arch = ["sm_90"]', "", "field requires.arch: expected a value for an entry of kind kernel, found none"),
        ('license = "Apache-2.0"', 'license = "MIT\\n"', "field license: expected"),
        ("schema = 1", 'schema = 1\nid = "x"', 'field id: expected no field of this name, found "x"'),
        ('title = "RMSNorm', 'title = "\\u001b[2JRMSNorm', "field title: expected printable text, found the"),
        ('operator = "rmsnorm"', 'operator = "layernorm"', "field operator: expected 'rmsnorm', the name"),
        ("kernel.py:run", "other.py:run", "field entry_point: expected a file other.py in the folder, found none"),
        ("kernel.py:run", "../kernel.py:run", "field entry_point: expected FILE:FUNCTION"),
        ('outcome = "works"', 'outcome = "no_effect"', "field negative: expected a value for an entry of"),
        ("schema = 1", "schema = 1\nschema = 1", "entry/entry.toml: expected TOML, found: Cannot overwrite a value"),
        ("schema = 1", "schema = [[[", "entry/entry.toml: expected TOML, found: "),
        ("schema = 1", "schema = 2", "field schema: expected 1, found 2"),
        ("schema = 1", 'schema = 1\n"a\\u001b\\n" = "\\u202e"', "field a\\x1b\\n: expected no field of this name"),
        ("schema = 1", "x = " + "[" * 20000 + "]" * 20000, "expected TOML, found nesting that is too deep"),
        ("schema = 1", "x = " + "{a = " * 300 + "1" + "}" * 300, "expected TOML, found nesting that is too deep"),
        ("schema = 1", "a." * 20 + "b = 1", "expected TOML, found nesting that is too deep"),
        ("schema = 1", "a" + ".a" * 15_000 + " = 1", "expected at most 64 dots in a line, found 15,000 in line 1"),
        ("version = 1", "version = 0x" + "f" * 9_000, "field version: expected an integer of at most 64 bits"),
        ("version = 1", "version = 10000001", "field version: expected less than or equal to 1000000"),
        ('title = "RMSNorm', 'title = "\\u200fRMSNorm', "field title: expected printable text, found the"),
        ('title = "RMSNorm', 'title = "\\U000E0041RMSNorm', "field title: expected printable text, found the"),
    ],
)  # fmt: skip
def test_a_broken_fact_names_the_field_and_both_sides(folder: Path, old: str, new: str, said: str) -> None:
    edit(folder, old, new)
    assert said in fault(folder)


def test_code_that_reads_in_another_order_than_it_runs_is_refused(folder: Path) -> None:
    (folder / "kernel.py").write_text("def run(x):\n    return x  # \u202e evil\n", encoding="utf-8")
    assert "kernel.py: expected printable text, found the character U+202E" in fault(folder)


def test_nothing_lies_too_deep_to_be_seen(folder: Path) -> None:
    deep = folder / "a/b/c"
    deep.mkdir(parents=True)
    (deep / "seen.py").write_text("x = 1\n")
    assert "a/b/c/seen.py" in files.read(folder, ID).files
    (deep / "d").mkdir()
    assert "a/b/c/d: expected at most 3 folders inside one another" in fault(folder)


def test_json_with_many_keys_is_read_in_linear_time() -> None:
    text = "{" + ",".join(f'"k{number}": 1' for number in range(80_000)) + "}"
    began = time.process_time()
    assert len(cast("dict[str, int]", files.strict_json(text.encode()))) == 80_000
    assert time.process_time() - began < 5
    with pytest.raises(ValueError, match="the key 'k1' stands there twice"):
        files.strict_json(text.replace('"k2"', '"k1"').encode())


def test_every_fault_is_counted(folder: Path) -> None:
    edit(folder, "version = 1", "version = 0")
    edit(folder, '"bfloat16"', '"bf16"')
    assert fault(folder).endswith("(and 1 more)")


@pytest.mark.parametrize("name", ["entry.toml", "README.md"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert fault(folder) == f"entry/{name}: the file is missing"


def test_a_large_readme_is_refused_without_being_read(folder: Path) -> None:
    (folder / "README.md").write_bytes(b"a" * (10 << 20))
    assert fault(folder) == "entry/README.md: expected at most 65,536 bytes, found 10,485,760"


def test_a_long_readme_is_refused(folder: Path) -> None:
    (folder / "README.md").write_text("a\n" * 60)
    files.read(folder, ID)
    (folder / "README.md").write_text("a\n" * 60 + "a")
    assert fault(folder) == "entry/README.md: expected at most 60 lines, found 61"


def test_a_large_candidate_is_refused(folder: Path) -> None:
    (folder / "kernel.py").write_bytes(b"#" * ((1 << 20) + 1))
    assert fault(folder).startswith("entry/kernel.py: expected at most 1,048,576 bytes, found 1,048,577")


def test_a_binary_file_is_refused(folder: Path) -> None:
    (folder / "kernel.py").write_bytes(b"\x7fELF\0")
    assert fault(folder) == "entry/kernel.py: expected text, found a binary file (NUL byte at 4)"


@pytest.mark.parametrize("name", ["entry.toml", "README.md", "kernel.py"])
def test_text_that_is_not_utf8_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"# a\n\xff")
    assert fault(folder).startswith(f"entry/{name}: expected UTF-8, found byte 0xff at line 2")


@pytest.mark.parametrize("target", ["kernel.py", "../../../../kb.toml", "/etc/hostname", "nowhere"])
def test_a_link_is_refused_wherever_it_points(folder: Path, target: str) -> None:
    (folder / "extra.py").symlink_to(target)
    assert fault(folder) == "entry/extra.py: expected a file of its own, found a symbolic link"


def test_a_linked_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "src").symlink_to(tmp_path)
    assert "src: expected a file of its own, found a symbolic link" in fault(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert "expected a folder, found a symbolic link" in fault(link)


def test_a_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    assert fault(folder) == "entry/pipe.py: expected a regular file, found a device, pipe or socket"


def test_a_socket_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.py")
        assert "found a device, pipe or socket" in fault(folder)


def test_a_pipe_that_took_a_files_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    with pytest.raises(EntryFormatError, match="expected a regular file"):
        content.read_file(tmp_path / "p", 10)


@pytest.mark.parametrize("name", ["model.so", "data.bin", "kernel", "a b.py", "nul.py"])
def test_an_unknown_kind_of_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_text("x")
    assert fault(folder).startswith(f"entry/{name}: ")


def test_a_name_that_is_not_text_is_escaped(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n.py")).write_text("x")
    assert "/\\udcff\\n.py: " in fault(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting property name"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1, "a": 2}', "the key 'a' stands there twice"),
        ("[" * 100000, "the nesting is too deep"),
        ("[" * 20 + "]" * 20, "the nesting is too deep"),
    ],
)
def test_json_is_read_strictly(folder: Path, text: str, said: str) -> None:
    (folder / "config.json").write_text(text)
    message = fault(folder)
    assert message.startswith("entry/config.json: expected JSON, found: ")
    assert said in message


def test_a_config_needs_its_parameters(root: Root, write_entry: WriteEntry) -> None:
    folder = write_entry(root.entries, "config/rmsnorm/a")
    edit(folder, "[requires]", '[tuned]\nkernel = "x"\ndevice = "NVIDIA H200"\n\n[requires]')
    assert fault(folder, "config/rmsnorm/a") == "entry/config.json: the file is missing"
    (folder / "config.json").write_text("{}")
    assert files.read(folder, "config/rmsnorm/a").kind == "config"


def test_hidden_files_and_byte_code_are_ignored(folder: Path) -> None:
    before = files.read(folder, ID).digest
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "kernel.pyc").write_bytes(b"\0")
    assert files.read(folder, ID).digest == before


def test_prose_and_tags_leave_the_digest_and_the_kernel_does_not(folder: Path) -> None:
    before = files.read(folder, ID)
    (folder / "README.md").write_text("# Other words\n")
    edit(folder, '"decode"', '"prefill"')
    after = files.read(folder, ID)
    assert after.digest == before.digest
    assert content.read(folder).digest != content.Content(before.files, (), ()).digest
    (folder / "kernel.py").write_text("def run(x):\n    return x  # faster\n")
    assert files.read(folder, ID).digest != before.digest


def test_many_records_are_fine_and_many_files_are_not(folder: Path) -> None:
    (folder / "records").mkdir()
    for number in range(content.MAX_FILES + 5):
        (folder / "records" / f"{number}.json").write_text("{}")
    assert len(files.read(folder, ID).evidence) == content.MAX_FILES + 5
    for number in range(content.MAX_FILES):
        (folder / f"k{number}.py").write_text("")
    assert f"expected at most {content.MAX_FILES} files" in fault(folder)


def test_names_that_differ_in_case_only_are_refused(folder: Path) -> None:
    (folder / "Kernel.py").write_text("")
    assert fault(folder) == "entry/kernel.py: the same name as Kernel.py on many systems"


def test_windows_line_ends_in_a_readme_are_read_as_lines(folder: Path) -> None:
    (folder / "README.md").write_bytes(b"\xef\xbb\xbf# A\r\n\r\nb\r\n")
    assert files.read(folder, ID).readme == "# A\n\nb\n"


@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\x07", "\x9b"])
def test_a_readme_that_could_fool_a_terminal_is_refused(folder: Path, character: str) -> None:
    (folder / "README.md").write_text(f"# A {character}", encoding="utf-8")
    assert "README.md: expected printable text, found the character U+" in fault(folder)


@given(st.binary(max_size=200))
def test_any_bytes_are_facts_or_faults(body: bytes) -> None:
    if b"\xff" in body or b"\0" in body:
        return
    try:
        body.decode()
    except UnicodeDecodeError:
        return
    model, _, faults = files.parse_facts(body)
    assert (model is None) == bool(faults)
    assert all("\n" not in fault for fault in faults)


def test_an_edit_keeps_comments_and_order() -> None:
    text = (
        '# why\nschema = 1\nversion = 1 # bump\ntitle = "A title"\nsummary = "A summary of it."\noutcome = "works"\n'
        'license = "MIT"\n\n[source]\norigin = "written here"\n'
    )
    edited = files.edit_facts(text, {"version": 2})
    assert edited == text.replace("version = 1 #", "version = 2 #")
    assert tomllib.loads(files.edit_facts(edited, {"tags": ["a"]}))["tags"] == ["a"]
    with pytest.raises(EntryFormatError, match="field version"):
        files.edit_facts(text, {"version": "two"})
