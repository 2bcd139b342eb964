"""The process in which probes run that may hang or die: ``python -m npugraph_strategies._selftest._worker``.

It writes what happens to a pipe, a JSON object on each line, as it happens.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, final

import attrs

from npugraph_strategies._selftest._catalogue import PROBES
from npugraph_strategies._selftest._environment import environment
from npugraph_strategies._selftest._lab import open_lab
from npugraph_strategies._selftest._runner import damage, run_probe
from npugraph_strategies.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npugraph_strategies._selftest._probe import Probe, Step

__all__ = ["main", "serve"]


@final
@attrs.frozen(eq=False)
class _Pipe:
    """Where the parent reads; a `Listener`."""

    file: TextIO

    def tell(self, kind: str, **facts: Any) -> None:
        """Write one message."""
        self.file.write(json.dumps({"kind": kind, **facts}) + "\n")
        self.file.flush()

    def calling(self, what: str) -> None:
        """Say what is called, since it may not return."""
        self.tell("calling", what=what)

    def stepped(self, step: Step) -> None:
        """Say what came of it."""
        self.tell("step", step=attrs.asdict(step))


def serve(kind: str, probes: Sequence[Probe], file: TextIO) -> None:
    """Run probes on one device until all are done, or until one has broken it for the next."""
    pipe = _Pipe(file)
    try:
        lab = open_lab(kind)
    except RuntimeUnavailable as error:
        pipe.tell("unavailable", reason=error.reason)
        return
    pipe.tell("opened", environment=environment(lab))
    for probe in probes:
        pipe.tell("begun", probe=probe.name)
        result = run_probe(probe, lab, pipe)
        pipe.tell("ended", seconds=result.seconds, reason=result.reason)
        broken = damage(lab)
        if broken is not None:
            pipe.tell("broken", reason=broken)
            return


def main(arguments: Sequence[str]) -> None:
    """Run the probes that `arguments` name, after the file descriptor to write to and the kind of runtime."""
    descriptor, kind, *names = arguments
    by_name = {probe.name: probe for probe in PROBES}
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as file:
        serve(kind, [by_name[name] for name in names], file)


if __name__ == "__main__":
    main(sys.argv[1:])
