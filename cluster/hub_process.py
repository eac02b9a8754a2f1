"""The door to huggingface_hub: one question to a hub, or one file from it, in a process that can be ended from outside.

Standard input: one JSON line {"do": "list" | "read" | "bring" | "stubs", "repo", "revision", ...}, then nothing until
our parent ends. Standard output: one JSON line; {"again": text} when another try may help, {"error": kind, "text"} when
not.
"""

import json
import os
import signal
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

SEGMENT = 8 << 30  # one request's share: more than 50 GB in one the hub does not serve
CHUNK = 1 << 20  # what an interruption can lose
ANSWER = 30.0
ANSWERS = 8  # at once
HEADER = 256 << 10  # most headers are in the first answer
LONGEST = 100_000_000


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    want = json.loads(sys.stdin.readline())
    sys.stdout.write(json.dumps(_done(want)) + "\n")


def _done(want: dict[str, Any]) -> dict[str, Any]:
    _end_with_parent()
    try:
        from huggingface_hub import errors
    except ImportError as error:
        return {"error": "library", "text": str(error)}
    try:
        return {"list": _list, "read": _read, "bring": _bring, "stubs": _stubs}[want["do"]](want)
    except errors.GatedRepoError as error:
        return {"error": "gated", "text": str(error).splitlines()[0]}
    except errors.RepositoryNotFoundError:
        return {"error": "missing", "text": f"repository {want['repo']}"}
    except errors.RevisionNotFoundError:
        return {"error": "missing", "text": f"revision {want['revision']}"}
    except errors.EntryNotFoundError:
        return {"error": "missing", "text": f"file {want['name']} at {want['revision']}"}
    except Exception as error:  # a process boundary: whatever it is, the other side tries again
        return {"again": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def _end_with_parent() -> None:
    """Standard input is a pipe that our parent holds open: when it ends, however, so do we."""
    from threading import Thread

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def _list(want: dict[str, Any]) -> dict[str, Any]:
    from huggingface_hub import HfApi

    info = HfApi().model_info(
        want["repo"], revision=want["revision"] or None, files_metadata=True, token=_token(), timeout=ANSWER
    )
    files = [
        {
            "name": one.rfilename,
            "size": int(one.size or 0),
            "sha256": one.lfs.sha256 if one.lfs else "",
            "sha1": one.blob_id or "",
        }
        for one in info.siblings or ()
    ]
    return {"revision": str(info.sha), "files": files}


def _read(want: dict[str, Any]) -> dict[str, Any]:
    from io import BytesIO

    from huggingface_hub.file_download import http_get

    url, headers = _address(want)
    file = BytesIO()
    http_get(url, file, headers=headers)
    return {"data": b64encode(file.getvalue()).decode()}


def _bring(want: dict[str, Any]) -> dict[str, Any]:
    if want["xet"]:
        return _bring_aside(want)
    from huggingface_hub import constants
    from huggingface_hub.file_download import http_get

    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    url, headers = _address(want)
    with Path(want["part"]).open("ab", buffering=0) as file:
        size = want["size"]
        if file.seek(0, os.SEEK_END) > size:
            file.truncate(0)
        while (at := file.seek(0, os.SEEK_END)) < size:
            end = min(at + SEGMENT, size)
            ranged = headers | {"Range": f"bytes={at}-{end - 1}"} if (at, end) != (0, size) else headers
            try:
                http_get(url, file, headers=ranged, expected_size=end - at)
            finally:
                if file.seek(0, os.SEEK_END) > end:  # the server sent everything where a range was asked for
                    file.truncate(at)
        os.fsync(file.fileno())
    _put(Path(want["part"]), Path(want["target"]), size)
    return {"done": True}


def _bring_aside(want: dict[str, Any]) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    aside = Path(want["part"]).with_suffix(".xet")
    path = hf_hub_download(
        want["repo"], want["name"], revision=want["revision"], local_dir=aside, token=_token(), force_download=True
    )
    _put(Path(path), Path(want["target"]), want["size"])
    from shutil import rmtree

    rmtree(aside, ignore_errors=True)
    return {"done": True}


def _stubs(want: dict[str, Any]) -> dict[str, Any]:
    """Files with the header and the size of the real ones, and a hole for the weights."""
    from concurrent.futures import ThreadPoolExecutor

    def stub(name: str, size: int) -> None:
        first = _range(want | {"name": name}, 0, min(HEADER, size))
        end = min(8 + int.from_bytes(first[:8], "little"), size)
        if end > LONGEST:
            raise ValueError(f"{name} is no safetensors file")
        if end > len(first):
            first += _range(want | {"name": name}, len(first), end)
        with (Path(want["folder"]) / name).open("wb") as file:
            file.write(first[:end])
            file.truncate(size)

    with ThreadPoolExecutor(ANSWERS) as pool:
        list(pool.map(lambda one: stub(*one), want["files"]))
    return {"done": True}


def _range(want: dict[str, Any], start: int, end: int) -> bytes:
    from io import BytesIO

    from huggingface_hub.file_download import http_get

    url, headers = _address(want)
    file = BytesIO()
    http_get(url, file, headers=headers | {"Range": f"bytes={start}-{end - 1}"}, expected_size=end - start)
    return file.getvalue()


def _put(whole: Path, target: Path, size: int) -> None:
    if whole.stat().st_size != size:
        whole.unlink()
        raise OSError(f"{target.name} came with another size")
    whole.replace(target)


def _address(want: dict[str, Any]) -> tuple[str, dict[str, str]]:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils._headers import build_hf_headers

    url = hf_hub_url(want["repo"], want["name"], revision=want["revision"])
    # compressed, a file could not be gone on with
    return url, build_hf_headers(token=_token()) | {"Accept-Encoding": "identity"}


def _token() -> str | bool:
    return os.environ.get("HF_TOKEN") or False


if __name__ == "__main__":
    main()
