"""Deltas of model files: made, applied, and refused."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models import delta as product
from app.models import delta_making, download
from app.models.delta import BadDelta, apply, apply_all, read_delta
from app.models.delta_making import make_delta
from app.models.download import Progress
from pipeline.engines import tensor_file
from pipeline.engines.tensor_file import NotTensors, pieces_of
from pipeline.errors import WeightsError
from tests.support import tiny_gguf
from tests.support.places import ROOT
from tests.support.tensors import Tensors, model, retrained, write_raw, write_safetensors
from tests.support.tiny_gguf import Raw

pytestmark = pytest.mark.machine


def there_and_back(old: Path, new: Path) -> product.Delta:
    """Make a delta, apply it and compare; the folder must hold nothing else."""
    delta = make_delta(old, new, old.with_name("delta"), "MIT")
    result = old.with_name("result")
    apply(delta, old, result)
    assert result.read_bytes() == new.read_bytes()
    assert not list(old.parent.glob(".*"))
    result.unlink()
    return delta


# --- safetensors -------------------------------------------------------------------------------


def test_only_what_changed_is_stored(tmp_path: Path) -> None:
    old = write_safetensors(tmp_path / "old", model())
    new = write_safetensors(tmp_path / "new", retrained(model(), 0.01))
    delta = there_and_back(old, new)
    changed, items = delta.changed
    assert 0.005 < changed / items < 0.015
    assert delta.path.stat().st_size < 0.02 * new.stat().st_size + 3000
    assert delta.info.base_sha256 == hashlib.sha256(old.read_bytes()).hexdigest()
    assert (delta.info.licence, delta.info.tool[:13]) == ("MIT", "reachy-voice ")


@pytest.mark.parametrize(
    ("dtype", "share", "most_percent"),
    [
        # The entropy of the positions is 0.5, 1.2, 5.6 and 0 % of a file of 16-bit items.
        ("u2", 0.01, 0.75),
        ("u2", 0.03, 1.6),
        ("u2", 0.3, 9.0),
        ("u2", 1, 10.0),
        ("u4", 1, 5.0),
        ("u1", 0.03, 3.5),
    ],
)
def test_a_small_change_of_a_weight_takes_few_bits(
    tmp_path: Path, dtype: str, share: float, most_percent: float
) -> None:
    draw = np.random.default_rng(0)
    weights = draw.integers(1 << 6, 1 << 7, 1_000_000).astype(dtype)
    changes = draw.choice([-1, 0, 1], weights.size, p=[share / 2, 1 - share, share / 2])
    tensors: Tensors = {"w": ("?", weights)}
    old = write_safetensors(tmp_path / "old", tensors)
    new = write_safetensors(tmp_path / "new", {"w": ("?", weights + changes.astype(dtype))})
    delta = there_and_back(old, new)
    assert 100 * delta.path.stat().st_size / new.stat().st_size < most_percent


def test_a_file_onto_itself_and_wholly_other_weights(tmp_path: Path) -> None:
    old = write_safetensors(tmp_path / "old", model())
    same = there_and_back(old, old)
    assert not same.parts
    assert same.changed == (0, 0)
    new = write_safetensors(tmp_path / "new", model(seed=9))
    assert there_and_back(old, new).path.stat().st_size < 1.05 * new.stat().st_size + 3000


def test_tensors_may_be_added_removed_moved_and_reshaped(tmp_path: Path) -> None:
    tensors = model()
    old = write_safetensors(tmp_path / "old", tensors)
    dtype, weight = tensors["layer.0.weight"]
    changed: Tensors = {
        "new": ("F64", np.arange(5.0)),
        "empty": ("F32", np.empty((0, 3), np.float32)),
        **{name: tensors[name] for name in ("layer.1.steps", "embed")},
        "layer.0.weight": (dtype, weight.T.copy()),
        "layer.0.bias": ("BF16", tensors["layer.0.bias"][1]),
    }
    new = write_safetensors(tmp_path / "new", changed, {"format": "pt"})
    delta = there_and_back(old, new)
    whole = {name for name in delta.parts if name.endswith("@whole")}
    assert whole == {f"{name}@whole" for name in ("new", "empty", "layer.0.weight")} | {
        "layer.0.bias@whole",
        "@header@whole",
    }
    there_and_back(new, old)


@given(
    share=st.sampled_from([0.0, 1e-4, 0.003, 0.1, 0.9]),
    rows=st.integers(1, 40),
    chunk=st.sampled_from([64, 1000, 1 << 20]),
    seed=st.integers(0, 99),
)
def test_any_change_is_reproduced(
    tmp_path_factory: pytest.TempPathFactory, share: float, rows: int, chunk: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    tensors = model(seed, rows)
    old = write_safetensors(folder / "old", tensors)
    new = write_safetensors(folder / "new", retrained(tensors, share, seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "CHUNK_BYTES", chunk)
        there_and_back(old, new)


def test_it_replaces_the_old_file(tmp_path: Path) -> None:
    old = write_safetensors(tmp_path / "old", model())
    old.chmod(0o640)
    new = write_safetensors(tmp_path / "new", retrained(model(), 0.01))
    steps: list[Progress] = []
    apply(make_delta(old, new, tmp_path / "delta"), old, report=steps.append)
    assert old.read_bytes() == new.read_bytes()
    assert old.stat().st_mode & 0o777 == 0o640
    assert steps[-1].done == steps[-1].total == new.stat().st_size


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_it_keeps_the_owner_of_the_old_file(tmp_path: Path) -> None:
    old = write_safetensors(tmp_path / "old", model())
    new = write_safetensors(tmp_path / "new", retrained(model(), 0.01))
    os.chown(old, 1234, 1235)
    apply(make_delta(old, new, tmp_path / "delta"), old)
    assert (old.stat().st_uid, old.stat().st_gid) == (1234, 1235)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    tensors: Tensors = {"w": ("BF16", draw.integers(0, 1 << 16, (40_000, 1000), np.uint16))}
    old = write_safetensors(tmp_path / "old", tensors)
    new = write_safetensors(tmp_path / "new", retrained(tensors, 0.02))
    del tensors
    tracemalloc.start()
    try:
        apply(make_delta(old, new, tmp_path / "delta"), old)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000 < old.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [[1], [3], [0], [1 << 62], [200, 2]])
def test_tensors_with_an_inconsistent_shape_are_reproduced(
    tmp_path: Path, shape: list[int]
) -> None:
    header = {"w": {"dtype": "F4", "shape": shape, "data_offsets": [0, 200]}}
    old = write_raw(tmp_path / "old", header, bytes(200))
    new = write_raw(tmp_path / "new", header, bytes(100) + b"\x10" + bytes(99))
    assert there_and_back(old, new).changed[0] == 1


@pytest.mark.parametrize("name", ["@header", "@gap:0"])
def test_reserved_part_names_are_refused(tmp_path: Path, name: str) -> None:
    header = {name: {"dtype": "U8", "shape": [8], "data_offsets": [2, 10]}}
    path = write_raw(tmp_path / "old", header, bytes(10))
    with pytest.raises(NotTensors):
        make_delta(path, path, tmp_path / "delta")


def test_a_delta_that_readers_would_refuse_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_safetensors(tmp_path / "old", model())
    new = write_safetensors(tmp_path / "new", model(seed=2))
    monkeypatch.setattr(delta_making, "MOST_HEADER_BYTES", 1000)
    with pytest.raises(WeightsError, match="Too many tensors"):
        make_delta(old, new, tmp_path / "delta")
    assert {each.name for each in tmp_path.iterdir()} == {"old", "new"}


def test_a_delta_never_overwrites_a_model(tmp_path: Path) -> None:
    old = write_safetensors(tmp_path / "old", model())
    new = write_safetensors(tmp_path / "new", model(seed=2))
    before = old.read_bytes(), new.read_bytes()
    for out in (old, new):
        with pytest.raises(WeightsError, match="one of the models"):
            make_delta(old, new, out)
    assert (old.read_bytes(), new.read_bytes()) == before


@pytest.mark.parametrize("replaced", [False, True])
def test_a_model_that_changes_while_it_is_read_gives_no_delta(
    tmp_path: Path, replaced: bool
) -> None:
    old = write_safetensors(tmp_path / "old", model())
    new = write_safetensors(tmp_path / "new", model(seed=2))
    third = write_safetensors(tmp_path / "third", model(seed=3))

    def change(_: Progress) -> None:
        if replaced and third.exists():
            third.replace(new)
        os.utime(new, (1, 1))

    with pytest.raises(WeightsError, match="changed while it was read"):
        make_delta(old, new, tmp_path / "delta", report=change)
    assert not (tmp_path / "delta").exists()


# --- GGUF --------------------------------------------------------------------------------------

Q4_K, Q8_0, F32, UNKNOWN = 12, 8, 0, 199


def gguf(path: Path, **more: Any) -> Path:
    draw = np.random.default_rng(0)
    data = {"general.architecture": "llama", "tokens": ["a", "bc"] * 500, "x.y": 1.5, **more}
    return tiny_gguf.write(
        path,
        data,
        {
            "embed": Raw((256, 40), Q4_K, draw.bytes(40 * 144)),
            "norm": draw.standard_normal(33).astype(np.float32),
            "blk.0": Raw((32, 50), Q8_0, draw.bytes(50 * 34)),
            "odd": Raw((7,), UNKNOWN, draw.bytes(64)),
        },
    )


def test_a_gguf_changes_by_block(tmp_path: Path) -> None:
    old, new = gguf(tmp_path / "old"), tmp_path / "new"
    data = bytearray(old.read_bytes())
    embed = next(piece for piece in pieces_of(old) if piece.name == "embed")
    assert (embed.size, embed.item) == (40 * 144, 144)
    for at in (0, 150, 160, 144 * 39 + 143):
        data[embed.start + at] ^= 1
    new.write_bytes(data)
    delta = there_and_back(old, new)
    assert delta.changed == (3, 40)
    assert delta.parts.keys() == {"embed@places", "embed@values"}
    assert delta.parts["embed@values"].size < 3 * 144 / 4


def test_block_sizes_equal_llama_cpps() -> None:
    library = Path(pytest.importorskip("llama_cpp").__file__).parent / "lib" / "libggml-base.so"
    ggml = ctypes.CDLL(str(library))
    ggml.ggml_blck_size.restype, ggml.ggml_type_size.restype = ctypes.c_int64, ctypes.c_size_t
    for numbers, block_bytes in tensor_file.BLOCK_BYTES.items():
        for kind, size in block_bytes.items():
            assert (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind)) == (numbers, size)


def test_changed_gguf_metadata_may_move_everything(tmp_path: Path) -> None:
    old = gguf(tmp_path / "old")
    new = gguf(tmp_path / "new", name="a longer text", more=["and", "a list"])
    delta = there_and_back(old, new)
    assert {"@key:name@whole", "@key:more@whole"} <= delta.parts.keys()
    assert "@key:tokens@whole" not in delta.parts
    assert delta.path.stat().st_size < 2500
    there_and_back(new, old)


def test_a_gguf_s_alignment_and_order_are_kept(tmp_path: Path) -> None:
    old = gguf(tmp_path / "old")
    pieces = {piece.name: piece for piece in pieces_of(old)}
    data = old.read_bytes()

    def piece(name: str) -> bytes:
        return data[pieces[name].start :][: pieces[name].size]

    # The same tensors aligned to 64, in another order, with another writer's padding.
    text = piece("@gguf") + piece("@key:x.y") + piece("@key:tokens")
    text += piece("@key:general.architecture") + piece("@tensors")
    padded = text.ljust(-(-len(text) // 64) * 64, b"\xaa")
    padded += piece("embed") + b"\xbb" * 32 + piece("norm") + piece("blk.0") + data[-64:]
    new = tmp_path / "new"
    new.write_bytes(padded)
    there_and_back(old, new)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:3],
        lambda data: data[:40],
        lambda data: data[:-700],
        lambda data: b"GGUF" + b"\xff" * 60,
        lambda data: data[:8] + b"\xff" * 8 + data[16:],
        lambda data: data[:4] + b"\0\0\0\3" + data[8:],
        lambda data: b"",
    ],
)
def test_a_damaged_gguf_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = gguf(tmp_path / "old")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(NotTensors, match="cannot be read"):
        make_delta(path, path, tmp_path / "delta")
    assert not (tmp_path / "delta").exists()


# --- failures leave the old model --------------------------------------------------------------


@pytest.fixture
def scene(tmp_path: Path) -> tuple[Path, Path]:
    """An old model and a delta."""
    old = write_safetensors(tmp_path / "old", model())
    new = write_safetensors(tmp_path / "new", retrained(model(), 0.01))
    return old, make_delta(old, new, tmp_path / "delta").path


def refused(old: Path, delta: Path, match: str | None = None) -> WeightsError:
    before = old.read_bytes()
    with pytest.raises(WeightsError, match=match) as error:
        apply(read_delta(delta), old)
    assert old.read_bytes() == before
    assert not list(old.parent.glob(".*"))
    assert error.value.why
    assert error.value.fix
    return error.value


def test_another_base_is_refused(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    whole = old.read_bytes()
    old.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "made from a file" in refused(old, delta, "does not belong").why
    old.write_bytes(whole + b"\0")
    refused(old, delta, "does not belong")
    old.write_bytes(whole)
    apply(read_delta(delta), old)
    refused(old, delta, "does not belong")


def test_a_cut_delta_is_refused_wherever_it_is_cut(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    whole = delta.read_bytes()
    for length in {*range(0, len(whole), 97), len(whole) - 1}:
        delta.write_bytes(whole[:length])
        refused(old, delta, "cannot be applied")


def test_a_changed_byte_is_noticed_wherever_it_is(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    whole = delta.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    for at in range(begin, len(whole), 41):
        delta.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        refused(old, delta, "cannot be applied")


def test_a_full_disk(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    before = old.read_bytes()
    limit = len(before) // 2
    program = (
        "import resource, sys; from pathlib import Path; "
        "from app.models.delta import apply, read_delta;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "apply(read_delta(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, delta, old], cwd=ROOT, capture_output=True, text=True
    )
    assert "could not be written: File too large. Nothing was changed" in done.stderr
    assert old.read_bytes() == before
    assert not list(old.parent.glob(".*"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit


def test_a_folder_that_cannot_be_written(
    scene: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, delta = scene

    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    refused(old, delta, "No space left")
    monkeypatch.setattr(product, "FLUSH_BYTES", 1)
    refused(old, delta, "No space left")
    monkeypatch.undo()
    with pytest.raises(WeightsError, match="Not a directory"):
        apply(read_delta(delta), old, delta / "target")
    for folder in (Path(), Path("/"), old.parent):
        with pytest.raises(WeightsError, match="could not be written"):
            apply(read_delta(delta), old, folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=70_000_000))
    monkeypatch.setattr(download, "SPARE_BYTES", 70_000_000)
    refused(old, delta, "The disk has no room")


def test_a_folder_that_cannot_be_flushed(
    scene: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, delta = scene
    flush = os.fsync

    def only_files(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flush(file)

    monkeypatch.setattr(os, "fsync", only_files)
    apply(read_delta(delta), old)
    assert hashlib.sha256(old.read_bytes()).hexdigest() == read_delta(delta).info.result_sha256


def test_kills_leave_the_old_model_or_the_new_one(scene: tuple[Path, Path]) -> None:
    old = scene[0]
    run = [sys.executable, "-m", "tests.models.killed_apply", str(old), str(old.with_name("new"))]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert before >= 50
    assert after == 3, "after the renaming, and before and after the folder is flushed"
    assert not list(old.parent.glob(".*"))


def test_a_cancelled_apply_leaves_nothing(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    before = old.read_bytes()

    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(read_delta(delta), old, report=stop)
    assert old.read_bytes() == before
    assert not list(old.parent.glob(".*"))


def test_a_base_replaced_meanwhile_stays(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    other = write_safetensors(old.with_name("other"), model(seed=5))
    whole = other.read_bytes()

    def replace(_: Progress) -> None:
        if other.exists():
            other.replace(old)

    with pytest.raises(BadDelta, match="does not belong"):
        apply(read_delta(delta), old, report=replace)
    assert old.read_bytes() == whole


def test_a_model_that_becomes_shorter_while_it_is_read(scene: tuple[Path, Path]) -> None:
    old = scene[0]
    new, out = old.with_name("new"), old.with_name("other")

    def cut(_: Progress) -> None:
        os.truncate(new, 1000)

    with pytest.raises(WeightsError, match="became shorter"):
        make_delta(old, new, out, report=cut)
    assert not out.exists()


def test_one_of_two_concurrent_applies_is_refused(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    found = read_delta(delta)

    def one(_: int) -> str:
        try:
            apply(found, old)
        except BadDelta as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        first, second = sorted(pool.map(one, range(2)))
    assert not first
    assert "does not belong" in second
    assert hashlib.sha256(old.read_bytes()).hexdigest() == found.info.result_sha256


def test_a_link_is_replaced_and_its_target_stays(scene: tuple[Path, Path]) -> None:
    old, delta = scene
    (old.parent / "hub").mkdir()
    real, before = old.parent / "hub" / "blob", old.read_bytes()
    old.rename(real)
    old.symlink_to(real)
    apply(read_delta(delta), old)
    assert not old.is_symlink()
    assert old.read_bytes() != before == real.read_bytes()


def test_deltas_can_be_applied_in_sequence(tmp_path: Path) -> None:
    tensors = model()
    files = [write_safetensors(tmp_path / "0", tensors)]
    deltas = []
    for number in (1, 2, 3):
        tensors = retrained(tensors, 0.01, number)
        files.append(write_safetensors(tmp_path / str(number), tensors))
        deltas.append(make_delta(files[-2], files[-1], tmp_path / f"delta{number}"))
    apply_all(deltas, files[0], tmp_path / "result")
    assert (tmp_path / "result").read_bytes() == files[3].read_bytes()
    with pytest.raises(BadDelta):
        apply_all([deltas[0], deltas[2]], files[0], tmp_path / "result")
    assert (tmp_path / "result").read_bytes() == files[3].read_bytes()
    assert not list(tmp_path.glob(".*"))


# --- malicious files ---------------------------------------------------------------------------

BASE = bytes(range(100))


def crafted(
    folder: Path, layout: Any, tensors: dict[str, bytes] | None = None, **info: Any
) -> tuple[Path, Path]:
    """A base of 100 bytes, and a delta that claims whatever ``info`` says."""
    base = folder / "base"
    base.write_bytes(BASE)
    metadata = {
        "format": product.FORMAT,
        "base_sha256": hashlib.sha256(BASE).hexdigest(),
        "base_bytes": "100",
        "result_sha256": "0" * 64,
        "result_bytes": "100",
        "layout": layout if isinstance(layout, str) else json.dumps(layout),
        **info,
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, data in (tensors or {}).items():
        place = [at, at + len(data)]
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": place}
        at += len(data)
    return base, write_raw(folder / "delta", header, b"".join((tensors or {}).values()))


def patch(gaps: bytes, values: bytes, count: int | None = None) -> dict[str, bytes]:
    size = (len(gaps) if count is None else count).to_bytes(4, "little")
    return {"w@places": zlib.compress(size + gaps), "w@values": zlib.compress(values)}


def damaged(name: str, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    parts = patch(b"\0", b"x")
    return {**parts, name: change(parts[name])}


PATCH = [["patch", "w", 0, 100, 1, 1]]
HUGE = [["patch", "w", 0, 10**15, 1, 1]]
EVEN_ITEMS = [["patch", "w", 0, 50, 2, 1]]
MALICIOUS: dict[str, tuple[Any, dict[str, bytes], dict[str, Any]]] = {
    "a place beyond the end": (PATCH, patch(b"\x64", b"x"), {}),
    "gaps far beyond the end": (PATCH, patch(b"\xff" * 50 + b"\0", b"x"), {}),
    "more gaps than items": (PATCH, patch(b"\0" * 101, b"x" * 101), {}),
    "billions of gaps": (PATCH, patch(b"\0", b"x", 2**32 - 1), {}),
    "fewer gaps than it says": (PATCH, patch(b"\0", b"x", 2), {}),
    "more gaps than it says": (PATCH, patch(b"\0\0", b"x", 1), {}),
    "a bomb of gaps": (PATCH, patch(bytes(10**7), b"x", 1), {}),
    "a bomb of values": (PATCH, patch(b"\0", bytes(10**7)), {}),
    "too few values": (PATCH, patch(b"\0\0", b"x"), {}),
    "too many values": (PATCH, patch(b"\0", b"xy"), {}),
    "half a value": (EVEN_ITEMS, patch(b"\0\0", b"xyz"), {}),
    "no places": (PATCH, {"w@values": b"x"}, {}),
    "no values": (PATCH, {"w@places": b"\0"}, {}),
    "no zlib": (PATCH, damaged("w@places", lambda data: b"abcdefgh"), {}),
    "an empty stream": (PATCH, damaged("w@places", lambda data: b""), {}),
    "a cut stream": (PATCH, damaged("w@values", lambda data: data[:-5]), {}),
    "a stream without its checksum": (PATCH, damaged("w@values", lambda data: data[:-4]), {}),
    "a wrong checksum": (PATCH, damaged("w@values", lambda data: data[:-1] + b"x"), {}),
    "more behind a stream": (PATCH, damaged("w@values", lambda data: data + b"x"), {}),
    "much behind a stream": (PATCH, damaged("w@places", lambda data: data + bytes(2 << 20)), {}),
    "no tensor": ([["put", "w"]], {}, {}),
    "a tensor twice": ([["put", "w"]] * 2, {"w@whole": bytes(50)}, {}),
    "a copy beyond the end": ([["copy", 50, 100]], {}, {}),
    "a negative start": ([["copy", -1, 100]], {}, {}),
    "a copy of nearly everything": ([["copy", 0, 1 << 62]], {}, {"result_bytes": str(1 << 62)}),
    "the base many times over": ([["copy", 0, 100]] * 3, {}, {"result_bytes": "300"}),
    "10**15 items": (HUGE, patch(b"\0", b"x"), {}),
    "10**15 items of a base that is not here": (
        HUGE,
        patch(b"\0", b"x"),
        {"base_bytes": str(10**15), "result_bytes": str(10**15)},
    ),
    "huge items": (
        [["patch", "w", 0, 1, 1 << 40, 1]],
        patch(b"", b""),
        {"base_bytes": str(1 << 40)},
    ),
    "items without bytes": ([["patch", "w", 0, 100, 0, 1]], patch(b"", b""), {}),
    "a huge result": ([["copy", 0, 100]], {}, {"result_bytes": str(1 << 60)}),
    "another result": ([["copy", 0, 100]], {}, {}),
    "an unknown step": ([["run", "rm"]], {}, {}),
    "a number as text": ([["copy", "x", 1]], {}, {}),
    "no list": ({"copy": 1}, {}, {}),
    "no JSON": ("{", {}, {}),
    "a deep layout": ("[" * 100_000, {}, {}),
    "another format": ([["copy", 0, 100]], {}, {"format": "other"}),
    "a path as digest": ([["copy", 0, 100]], {}, {"result_sha256": "../../etc/passwd"}),
    "more metadata": ([["copy", 0, 100]], {}, {"target": "/etc/passwd"}),
    "a count below zero": ([["copy", 0, 100]], {}, {"base_bytes": "-100"}),
}


@pytest.mark.parametrize("name", MALICIOUS)
def test_a_malicious_delta_is_refused(tmp_path: Path, name: str) -> None:
    layout, tensors, info = MALICIOUS[name]
    refused(*crafted(tmp_path, layout, tensors, **info))


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["a@whole"].update(data_offsets=[0, 30]),
        lambda header: header["b@whole"].update(data_offsets=[10, 40]),
        lambda header: header["b@whole"].update(data_offsets=[40, 20]),
        lambda header: header["b@whole"].update(data_offsets=[20, 1 << 62]),
        lambda header: header["b@whole"].update(data_offsets=[-20, 40]),
        lambda header: header["b@whole"].update(data_offsets="ab"),
        lambda header: header["b@whole"].update(data_offsets=[20.0, 40.0]),
        lambda header: header["b@whole"].update(shape=[-1]),
        lambda header: header["b@whole"].update(shape=[1] * 9),
        lambda header: header["b@whole"].pop("shape"),
        lambda header: header.update({"c@whole": 5}),
        lambda header: header.pop("a@whole"),
        lambda header: header.pop("__metadata__"),
    ],
)
def test_headers_that_overlap_or_leave_holes(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    parts = {"a@whole": b"a" * 20, "b@whole": b"b" * 20}
    layout = [["put", "a"], ["put", "b"]]
    result = hashlib.sha256(b"".join(parts.values())).hexdigest()
    base, path = crafted(tmp_path, layout, parts, result_bytes="40", result_sha256=result)
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header)
    refused(base, write_raw(path, header, data[end:]), "cannot be applied")


def test_bytes_of_no_tensor_are_refused(tmp_path: Path) -> None:
    digest = hashlib.sha256(BASE).hexdigest()
    base, path = crafted(tmp_path, [["copy", 0, 100]], result_sha256=digest)
    apply(read_delta(path), base)
    path.write_bytes(path.read_bytes() + b"x")
    refused(base, path, "do not fill")


def test_names_are_never_paths(tmp_path: Path) -> None:
    name = "../../outside"
    result = hashlib.sha256(b"evil").hexdigest()
    info = {"result_sha256": result, "result_bytes": "4"}
    (tmp_path / "in" / "deep").mkdir(parents=True)
    base, path = crafted(
        tmp_path / "in" / "deep", [["put", name]], {f"{name}@whole": b"evil"}, **info
    )
    apply(read_delta(path), base)
    assert base.read_bytes() == b"evil"
    assert {each.name for each in tmp_path.rglob("*") if each.is_file()} == {"base", "delta"}


def test_a_header_that_is_too_large_or_says_a_name_twice(tmp_path: Path) -> None:
    base, path = crafted(tmp_path, [["copy", 0, 100]])
    path.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    refused(base, path, "cut off")
    path = write_raw(path, '{"a": {}, "a": {}}', b"")
    assert "twice" in refused(base, path).why


READ = """
import sys
from pathlib import Path
from app.models.delta import BadDelta, read_delta
for path in Path(sys.argv[1]).glob("*.delta"):
    try:
        read_delta(path)
    except BadDelta as error:
        print(error)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def test_no_header_takes_much_memory(tmp_path: Path) -> None:
    space = product.MOST_HEADER_BYTES - 1000
    metadata = ",".join(f'"{number:x}":1' for number in range(space // 10))
    write_raw(tmp_path / "0.delta", f'{{"__metadata__":{{{metadata}}}}}', b"")
    values = '{"":[]},' * (space // 8)
    write_raw(tmp_path / "1.delta", f'{{"a":[{values}0]}}', b"")
    for number, item in enumerate(("1,", "[],", "{},", "[[[[]]]],", '["copy",0,0],'), 2):
        layout = item * (space // len(json.dumps(item)[1:-1]))
        crafted(tmp_path, f"[{layout}0]")[1].rename(tmp_path / f"{number}.delta")
    crafted(tmp_path, f"[[{'[],' * (space // 3)}0]]")[1].rename(tmp_path / "7.delta")
    run = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    *errors, most_kib = done.stdout.splitlines()
    assert len(errors) == 8
    assert not any("too large" in each for each in errors)
    assert int(most_kib) < 200_000


def test_errors_are_bad_deltas(tmp_path: Path) -> None:
    with pytest.raises(BadDelta, match="No such file"):
        read_delta(tmp_path / "none")
