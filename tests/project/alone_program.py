"""Run programs of one framework beside ``alone.py``: ``alone_program.py pyro [ROOT] < FILE``.

The file is JSON: by name, blocks of code that are run in order, in one namespace. The tracebacks
of those that failed are printed as JSON on the last line, by name. With the folder of the
repository, programs of JAX that do not run often are not compiled but evaluated by NumPy.
"""

import contextlib
import io
import json
import sys
import time
import traceback
import types

import alone


def failure(name, blocks):
    """The traceback of what failed; None if all ran."""
    module = types.ModuleType(f"block_{name.replace(' ', '_')}")
    sys.modules[module.__name__] = module  # where dataclasses and pickle look it up
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for code in blocks:
                exec(compile(code, name, "exec"), vars(module))
    except Exception:
        return traceback.format_exc()
    return None


def by_numpy(root):
    """A context in which what runs seldom is not compiled; the user's tests.py stays in place."""
    sys.path.insert(0, root)
    from tests.checks import small_programs

    sys.path.remove(root)
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    return small_programs.large_by_numpy()


def main(framework, *root):
    """Run all, what needs no further package first: Python keeps what is imported."""
    with by_numpy(*root) if root else contextlib.nullcontext():
        run_all(framework)


def run_all(framework):
    programs = {name: (blocks, "".join(blocks)) for name, blocks in json.load(sys.stdin).items()}
    failures = {}
    for name in sorted(programs, key=lambda name: len(alone.named_extras(programs[name][1]))):
        blocks, code = programs[name]
        alone.leave_alone(framework, code)
        begin = time.process_time()
        found = failure(name, blocks)
        print(f"{name}: {time.process_time() - begin:.2f} s", file=sys.stderr, flush=True)
        if found is not None:
            failures[name] = found
    print(json.dumps(failures))


main(*sys.argv[1:])
