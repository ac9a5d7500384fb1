import errno
import threading
import time

import pytest

from smilex.data.cache import build_once
from smilex.errors import SmilexError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_entry_is_built_once(tmp_path):
    built = []

    def build(folder):
        built.append(names(folder))
        (folder / "a").write_text("whole")

    for _ in range(2):
        build_once(tmp_path / "cache" / "entry", build)
    assert built == [[]]
    assert names(tmp_path / "cache") == ["entry", "entry.lock"]
    assert (tmp_path / "cache" / "entry" / "a").read_text() == "whole"


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_what_is_interrupted_leaves_nothing_and_is_built_anew(tmp_path, fault):
    def fail(folder):
        (folder / "a").write_text("half")
        raise fault

    with pytest.raises(fault):
        build_once(tmp_path / "entry", fail)
    assert names(tmp_path) == ["entry.lock"]
    build_once(tmp_path / "entry", lambda folder: (folder / "b").touch())
    assert names(tmp_path / "entry") == ["b"]


def test_what_a_killed_process_left_is_cleared(tmp_path):
    (tmp_path / "entry.partial").mkdir()
    (tmp_path / "entry.partial" / "half").touch()
    build_once(tmp_path / "entry", lambda folder: (folder / "whole").touch())
    assert names(tmp_path / "entry") == ["whole"]


def test_others_wait_for_the_first(tmp_path):
    built = []

    def build(folder):
        built.append(folder)
        time.sleep(0.2)

    threads = [threading.Thread(target=build_once, args=(tmp_path / "entry", build)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "no space left for the cache in"), (errno.EIO, "cannot write the cache in")]
)
def test_a_disk_that_refuses(tmp_path, number, message):
    def refuse(_folder):
        raise OSError(number, "no")

    with pytest.raises(SmilexError, match=f"{message} .*name another place with cache_dir or SMILEX_CACHE"):
        build_once(tmp_path / "entry", refuse)
    assert names(tmp_path) == ["entry.lock"]
