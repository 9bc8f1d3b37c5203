"""What Weft found on this machine: versions, processor, threads, libraries, cache, memory.

`info()` is for programs, `format_info()` for people; `weft info` prints it. Attach it to bug reports.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import settings
from . import _host, limits, memory, threads
from .memory import format_bytes

_PACKAGES = ("numpy", "llvmlite", "onednn-cpu-gomp", "ml_dtypes", "safetensors", "rich")
# Instruction sets that determine the speed of kernels; /proc/cpuinfo lists a hundred others.
_FEATURES = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx512", "avx_vnni", "amx", "asimd", "sve", "bf16", "i8mm")


def info() -> dict[str, Any]:
    """Everything Weft knows about where it runs, as plain Python values.

    Loads OpenMP and oneDNN if they are not loaded yet; errors are listed under `"problems"` instead of raised as warnings.

    >>> [name for name in sorted(wf.info()) if name < "p"]
    ['cache', 'cpu', 'memory', 'onednn', 'openmp']
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threads.ensure_width()
        onednn = _onednn()
    figures = memory.stats()
    return {
        "weft": {"version": _weft_version(), "path": str(Path(__file__).resolve().parents[1])},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "cpu": {
            "model": cpu_model(),
            "features": cpu_features(),
            "count": os.cpu_count() or 1,
            "usable": _host.usable_cpus(),
            "quota": _host.cpu_quota(),
        },
        "threads": {"width": threads.get_num_threads(), "limit": threads._limit()},
        "openmp": {
            "path": threads.openmp_path(),
            "usable": threads.openmp_usable(),
            "others": [path for path in threads.openmp_libraries() if path != threads.openmp_path()],
        },
        "onednn": onednn,
        "cache": _cache(),
        "programs": _programs(),
        "memory": {
            "available": _host.memory_available(),
            "total": _host.memory_total(),
            "in_use": figures.in_use,
            "cached": figures.cached,
            "peak": figures.peak,
            "hits": figures.hits,
            "misses": figures.misses,
            "released": figures.released,
        },
        "settings": {s.name: s.text() for s in settings.ALL if s.text()},
        "problems": [str(warning.message) for warning in caught],
    }


def format_info(found: dict[str, Any] | None = None) -> str:
    """`info()` as text, one fact per line."""
    found = info() if found is None else found
    memory_figures, cpu, cache = found["memory"], found["cpu"], found["cache"]
    onednn, openmp = found["onednn"], found["openmp"]
    rows = [
        ("weft", f"{found['weft']['version']} ({found['weft']['path']})"),
        ("python", f"{found['python']['version']} ({found['python']['executable']})"),
        ("platform", found["platform"]),
        *((name, version or "not installed") for name, version in found["versions"].items()),
        ("processor", cpu["model"]),
        ("features", " ".join(cpu["features"]) or "unknown"),
        ("cores", _cores(cpu)),
        ("threads", f"{found['threads']['width']} (WEFT_NUM_THREADS; at most {found['threads']['limit']})"),
        ("OpenMP", openmp["path"] or "none: one thread"),
        *(("", f"also loaded, not used by Weft: {path}") for path in openmp["others"]),
        ("oneDNN", f"{onednn['version']}, {onednn['isa']} ({onednn['path']})" if onednn["version"] else "none"),
        *([("", _copies_text(onednn["copies"]))] if onednn.get("copies") else ()),
        ("kernel cache", _cache_text(cache)),
        ("programs", _programs_text(found["programs"])),
        ("memory", _memory_text(memory_figures)),
        ("allocator", _allocator_text(memory_figures)),
        ("settings", " ".join(f"{name}={text}" for name, text in found["settings"].items()) or "defaults"),
        *(("problem", problem) for problem in found["problems"]),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def cpu_model() -> str:
    """The processor's name."""
    fields = _cpuinfo()
    return fields.get("model name") or platform.processor() or platform.machine() or "unknown"


def cpu_features() -> list[str]:
    """The instruction sets that matter to kernels, in the operating system's spelling."""
    fields = _cpuinfo()
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return [flag for flag in flags if flag.startswith(_FEATURES)]


def _cpuinfo() -> dict[str, str]:
    """The first processor's entry in /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in (_host._read(Path("/proc/cpuinfo")) or "").splitlines():
        if not line.strip():
            break
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def _weft_version() -> str:
    return str(getattr(sys.modules.get("weft"), "__version__", None) or _version("weft") or "unknown")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _onednn() -> dict[str, Any]:
    # By name: this layer is below the backends and must not import them.
    library = importlib.import_module("weft.backends.onednn.library")
    copies = importlib.import_module("weft.backends.onednn.copies")
    return {
        "available": library.available(),
        "version": library.version(),
        "path": library.path(),
        "isa": library.isa(),
        "copies": [str(path) for path in copies.copies()],
    }


def _copies_text(copies: list[str]) -> str:
    total = sum(os.path.getsize(path) for path in copies)
    names = ", ".join(os.path.basename(path) for path in copies)
    return f"pip stored it again as {names}: {format_bytes(total)}, which `weft info --dedupe` frees with links"


def _cache() -> dict[str, Any]:
    directory = importlib.import_module("weft.backends.llvm.cache").directory()
    contents = importlib.import_module("weft.backends.llvm.cache_limit").contents
    files, size = (0, 0) if directory is None else contents(directory)
    return {
        "directory": None if directory is None else str(directory),
        "files": files,
        "bytes": size,
        "limit": _limit(limits.cache_bytes()),
    }


def _programs() -> dict[str, Any]:
    """Counts of what is compiled in this process, without importing the compiler."""
    program, jit = sys.modules.get("weft.runtime.program"), sys.modules.get("weft.backends.llvm.jit")
    return {
        "alive": len(program.alive) if program is not None else 0,
        "bytes": program.idle_bytes() if program is not None else 0,
        "kernels": jit.loaded() if jit is not None else 0,
        "limit": _limit(limits.max_programs()),
        "bytes_limit": _limit(limits.program_bytes()),
    }


def _limit(value: int) -> int | None:
    return None if value == limits.UNLIMITED else value


def _cores(cpu: dict[str, Any]) -> str:
    text = f"{cpu['usable']} usable of {cpu['count']}"
    return text if cpu["quota"] is None else f"{text} (quota {cpu['quota']:g})"


def _cache_text(cache: dict[str, Any]) -> str:
    if cache["directory"] is None:
        return "off"
    limit = "no limit" if cache["limit"] is None else f"at most {format_bytes(cache['limit'])}"
    return f"{cache['directory']} ({cache['files']} files, {format_bytes(cache['bytes'])}; {limit}, WEFT_CACHE_SIZE)"


def _programs_text(programs: dict[str, Any]) -> str:
    count = "no limit" if programs["limit"] is None else f"at most {programs['limit']}"
    size = "no limit" if programs["bytes_limit"] is None else f"at most {format_bytes(programs['bytes_limit'])}"
    return (
        f"{programs['alive']} in memory ({count} per function, WEFT_MAX_PROGRAMS), {programs['kernels']} kernels, "
        f"{format_bytes(programs['bytes'])} for temporaries ({size}, WEFT_PROGRAM_MEMORY)"
    )


def _memory_text(figures: dict[str, Any]) -> str:
    if figures["available"] is None or figures["total"] is None:
        return "unknown"
    return f"{format_bytes(figures['available'])} available of {format_bytes(figures['total'])}"


def _allocator_text(figures: dict[str, Any]) -> str:
    names = ("in_use", "cached", "peak", "hits", "misses", "released")
    return str(memory.MemoryStats(**{name: figures[name] for name in names}))
