"""The self-test: its probes, how they are judged, run and reported, and the command."""

from __future__ import annotations

import io
import json
from collections import deque

import attrs
import pytest
from click.testing import CliRunner

from npugraph_strategies._selftest import _lab, _worker
from npugraph_strategies._selftest._apart import Silent, Worker, run_apart
from npugraph_strategies._selftest._catalogue import PROBES
from npugraph_strategies._selftest._lab import NpuLab, SimulatedLab, open_lab
from npugraph_strategies._selftest._probe import Notes, Step, probe
from npugraph_strategies._selftest._report import Report, UnreadableReport, differences
from npugraph_strategies._selftest._results import AGREES, DIFFERS, NOT_OBSERVABLE, finished, not_run
from npugraph_strategies._selftest._runner import damage, run, run_probe
from npugraph_strategies.cli import _selftest as command_module
from npugraph_strategies.cli._group import cli
from npugraph_strategies.errors import DeviceError, RuntimeUnavailable
from npugraph_strategies.runtimes import Choices, Limits, SimulatedDevice, SimulatedRuntime

BY_NAME = {one.name: one for one in PROBES}
SIMULATED = [one for one in PROBES if one.only is None]
QUICK = BY_NAME["capture.is-told"], BY_NAME["capture.default-stream"], BY_NAME["group.begin-outside"]


def small(**choices):
    """Make a simulated lab with few streams and events, so that its limits are soon reached."""
    device = SimulatedDevice(limits=Limits(streams=8, events=8), choices=Choices(**choices))
    return SimulatedLab(SimulatedRuntime(device))


# -- the probes ------------------------------------------------------------------------------------------------------


def test_each_probe_stands_for_one_rule():
    """No two probes share a name or a rule, and each expects something."""
    assert len(BY_NAME) == len({one.rule for one in PROBES}) == len(PROBES)
    assert all(one.expected and all(one.expected.values()) for one in PROBES)


@pytest.mark.parametrize("one", SIMULATED, ids=lambda one: one.name)
def test_the_simulated_device_agrees(one):
    """What can be observed on the simulated device is what is known about devices."""
    result = run_probe(one, small())
    assert (result.verdict, result.reason) == (AGREES, None), result


@pytest.mark.parametrize("one", SIMULATED, ids=lambda one: one.name)
def test_a_probe_leaves_nothing_behind(one):
    """After a probe a plain capture and replay work on the same device."""
    lab = SimulatedLab(SimulatedRuntime(limits=Limits(streams=64, events=64)))
    run_probe(one, lab)
    assert damage(lab) is None


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("event.wait-consumes", {"wait_consumes": False}),
        ("event.reset", {"wait_consumes": False}),
        ("event.one-record-two-replays", {"wait_consumes": False}),
        ("event.two-records-collapse", {"wait_consumes": False}),
        ("during.synchronise-stream", {"sync_stream_code": 107029}),
        ("during.synchronise-device", {"sync_device_code": 107029}),
    ],
)
def test_another_device_is_told_apart(name, choices):
    """On a device with another rule the probe of that rule differs."""
    assert run_probe(BY_NAME[name], small(**choices)).verdict == DIFFERS


@pytest.mark.parametrize("one", [one for one in PROBES if one.only == "npu"], ids=lambda one: one.name)
def test_what_needs_torch_npu_runs_to_its_end_elsewhere(one):
    """A probe for NPUs writes down what a device without its rule does; where nothing is barred, that is the rule."""
    result = run_probe(one, small())
    assert result.steps
    assert result.verdict == (AGREES if one.name in {"stream.task-queue", "during.unsafe-relaxed"} else DIFFERS)


# -- notes and verdicts ----------------------------------------------------------------------------------------------


def refuse(code=107033):
    """Raise as a runtime does: its own explanation, from the words of the device."""
    raise DeviceError(code, "updating", "an explanation") from RuntimeError("\n  said at 0x7f01\nat length")


def test_an_error_is_noted_by_its_code_and_the_words_of_the_device():
    """The outcome is the code; class and first line are the original error's, without addresses."""
    notes = Notes()
    assert notes.call("update", refuse) is None
    assert notes.steps == [Step("update", "107033", "RuntimeError", "said at 0x…")]


def test_an_error_without_a_code_is_noted_by_its_class():
    """The outcome is the name of the class."""
    notes = Notes()
    notes.call("read", {}.__getitem__, "x")
    assert notes.steps == [Step("read", "KeyError", "KeyError", "'x'")]


def test_a_call_that_returns_is_ok():
    """The call's result is handed back."""
    notes = Notes()
    assert notes.call("add", sum, [1, 2]) == 3
    assert notes.steps == [Step("add", "ok")]


@pytest.mark.parametrize(
    ("expected", "verdict"),
    [
        ({}, AGREES),
        ({"call": "107033"}, AGREES),
        ({"call": "107029 | 107033"}, AGREES),
        ({"call": "error"}, AGREES),
        ({"call": "107029"}, DIFFERS),
        ({"value": "error"}, DIFFERS),
        ({"call": "107033", "never done": "ok"}, DIFFERS),
    ],
)
def test_the_verdict_is_on_what_is_documented(expected, verdict):
    """Every documented step has to be there with an outcome that is allowed; the others do not count."""
    one = probe("subject.name", "A rule", expected)(lambda *_: None)
    steps = [Step("call", "107033", "RuntimeError"), Step("value", "1.0")]
    assert finished(one, steps, 0.0).verdict == verdict


def test_a_probe_that_raises_is_a_finding():
    """What it noted before stays, the error is a step, and the result says so."""

    def broken(_, notes):
        notes.saw("first", 1)
        refuse()

    result = run_probe(probe("subject.name", "A rule", {"first": "1", "second": "2"})(broken), small())
    assert result.observed == {"first": "1", "the probe itself": "107033"}
    assert (result.verdict, result.reason) == (DIFFERS, "the probe stopped: 107033")


def test_damage_is_described():
    """A device on which a plain capture fails is said to be broken, and how."""
    lab = SimulatedLab(SimulatedRuntime(limits=Limits(streams=1)))
    assert damage(lab).startswith("207008: ")


def test_a_wrong_result_is_damage(monkeypatch):
    """A device that captures, and computes something else, is broken too."""
    monkeypatch.setattr("npugraph_strategies._selftest._runner.replayed", lambda *_: None)
    assert damage(small()) == "a plain capture of 1 + 2 gives [-1.0]"


# -- running ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_run_says_why():
    """Hazardous probes and those of another runtime are results with a reason, each in its place."""
    chosen = BY_NAME["limit.events"], BY_NAME["capture.is-told"], BY_NAME["stream.pools"]
    seen = []
    facts, results = run("simulated", probes=chosen, watch=seen.append)
    assert [result.probe for result in results] == [one.name for one in chosen]
    assert [result.verdict for result in results] == [NOT_OBSERVABLE, AGREES, NOT_OBSERVABLE]
    assert "--hazardous" in results[0].reason
    assert "npu" in results[2].reason
    assert sorted(result.probe for result in seen) == sorted(one.name for one in chosen)
    assert facts["runtime"] == "simulated"


def test_hazardous_probes_run_when_asked_for():
    """With the flag they are run like the others."""
    _, (result,) = run("simulated", probes=[BY_NAME["event.never-recorded"]], hazardous=True)
    assert result.verdict == AGREES


def test_probes_run_in_a_process_of_their_own():
    """A real process, asked over a real pipe, gives the results that this one gives."""
    facts, results = run_apart("simulated", QUICK, seconds=60)
    found = [attrs.evolve(result, seconds=0.0) for result in results]
    assert found == [attrs.evolve(run_probe(one, open_lab("simulated")), seconds=0.0) for one in QUICK]
    assert facts["runtime"] == "simulated"


def test_a_process_that_dies_is_quoted():
    """The error tells how it ended and what it said last."""
    worker = Worker("simulated", ["no.such-probe"])
    with pytest.raises(Silent) as silent:
        worker.hear(60)
    worker.close()
    assert silent.value.outcome == "died: exit code 1"
    assert "no.such-probe" in silent.value.why


def test_a_process_that_is_slow_is_given_up():
    """No message within the time is an answer too, and the process is ended."""
    worker = Worker("simulated", [])
    with pytest.raises(Silent, match="no answer in"):
        worker.hear(0.001)
    worker.close()
    assert worker._process.returncode is not None


OPENED = {"kind": "opened", "environment": {"runtime": "npu"}}
ENDED = {"kind": "ended", "seconds": 0.5, "reason": None}
HANGS = Silent("no answer", "no answer in 9 s")
DIES = Silent("died: SIGSEGV", "the process died: SIGSEGV")


def begun(number):
    return {"kind": "begun", "probe": QUICK[number].name}


def step(what, outcome="ok"):
    return {"kind": "step", "step": {"what": what, "outcome": outcome, "error": None, "text": None}}


class Scripted:
    """Processes that say what they are told to."""

    def __init__(self, *scripts):
        self.scripts = deque(scripts)
        self.started = []
        self.closed = 0

    def __call__(self, _, names):
        self.started.append(list(names))
        self.messages = deque(self.scripts.popleft())
        return self

    def hear(self, _):
        message = self.messages.popleft()
        if isinstance(message, Silent):
            raise message
        return message

    def close(self):
        self.closed += 1


def apart(scripted, probes=QUICK):
    """Run probes in scripted processes; every one that is started is closed."""
    results = list(run_apart("npu", probes, seconds=9, start=scripted)[1])
    assert scripted.closed == len(scripted.started)
    return results


@pytest.mark.parametrize("silent", [HANGS, DIES], ids=["hangs", "dies"])
def test_a_call_that_does_not_return_is_a_finding(silent):
    """The steps before it stay, the call is named, and the rest run in a new process."""
    scripted = Scripted(
        [OPENED, begun(0), step("before", "False"), {"kind": "calling", "what": "inside"}, silent],
        [OPENED, begun(1), step("begin", "107031"), ENDED, begun(2), step("begin", "107029"), ENDED],
    )
    first, second, third = apart(scripted)
    assert first.observed == {"before": "False", "inside": silent.outcome}
    assert (first.verdict, first.reason) == (DIFFERS, silent.why)
    assert (second.verdict, third.verdict) == (AGREES, AGREES)
    assert scripted.started[1] == [QUICK[1].name, QUICK[2].name]


@pytest.mark.parametrize("last", [{"kind": "broken", "reason": "507046"}, HANGS], ids=["broken", "hangs"])
def test_a_process_that_a_probe_has_spoiled_is_replaced(last):
    """The result of that probe stands, and the next one has a new process."""
    scripted = Scripted([OPENED, begun(0), step("inside", "True"), ENDED, last], [OPENED, begun(1), ENDED])
    first, second = apart(scripted, QUICK[:2])
    assert first.observed == {"inside": "True"}
    assert second.steps == ()
    assert scripted.started == [[QUICK[0].name, QUICK[1].name], [QUICK[1].name]]


def test_a_process_that_dies_before_its_first_probe_is_not_started_for_ever():
    """The probe is given up, and the next one has its turn."""
    first, second = apart(Scripted([OPENED, DIES], [OPENED, begun(1), ENDED]), QUICK[:2])
    assert first.observed == {"the probe itself": "died: SIGSEGV"}
    assert second.seconds == 0.5


def test_a_device_that_is_lost_ends_the_run():
    """What could not be run any more says so."""
    unavailable = {"kind": "unavailable", "reason": "torch_npu finds no NPU"}
    first, *others = apart(Scripted([OPENED, begun(0), HANGS], [unavailable]))
    assert first.verdict == DIFFERS
    assert [(one.verdict, one.reason) for one in others] == [
        (NOT_OBSERVABLE, "the device cannot be opened any more: torch_npu finds no NPU")
    ] * 2


@pytest.mark.parametrize("script", [[{"kind": "unavailable", "reason": "none"}], [DIES]], ids=["unavailable", "dies"])
def test_without_a_device_there_is_no_run(script):
    """The first process that cannot open the device is an error, and is closed."""
    scripted = Scripted(script)
    with pytest.raises(RuntimeUnavailable):
        apart(scripted)
    assert scripted.closed == 1


def test_a_hazardous_probe_has_a_process_for_itself():
    """What it may spoil is its own."""
    hazard = BY_NAME["event.never-recorded"]
    scripted = Scripted(*([OPENED, {"kind": "begun"}, ENDED] for _ in range(3)))
    apart(scripted, [QUICK[0], hazard, QUICK[1]])
    assert scripted.started == [[QUICK[0].name], [hazard.name], [QUICK[1].name]]


def served(kind="simulated", probes=QUICK):
    """Return the messages of a process that serves probes."""
    file = io.StringIO()
    _worker.serve(kind, probes, file)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_each_call_is_told_before_it_is_made():
    """The parent knows what was called even if the call never returns."""
    kinds = [message["kind"] for message in served(probes=QUICK[1:2])]
    assert kinds == ["opened", "begun", "calling", "step", "ended"]


def test_a_process_stops_when_its_device_is_broken(monkeypatch):
    """The next probe would observe what the last one left behind."""
    monkeypatch.setattr(_worker, "damage", lambda _: "507046: stuck")
    messages = served()
    assert messages[-1] == {"kind": "broken", "reason": "507046: stuck"}
    assert sum(message["kind"] == "begun" for message in messages) == 1


def test_a_process_without_a_device_says_so(monkeypatch):
    """The reason is the runtime's."""

    def refused(_):
        raise RuntimeUnavailable("NpuRuntime", "torch_npu finds no NPU")

    monkeypatch.setattr(_worker, "open_lab", refused)
    assert served("npu") == [{"kind": "unavailable", "reason": "torch_npu finds no NPU"}]


# -- an NPU's lab, with stand-ins ------------------------------------------------------------------------------------


class Stream:
    """A stream that is busy for some queries."""

    def __init__(self, busy=0):
        self.busy, self.drained, self.stream_id = busy, 0, 7

    @property
    def npu_stream(self):
        self.drained += 1
        return 0xABC

    def query(self):
        self.busy -= 1
        return self.busy < 0


@pytest.mark.parametrize(("busy", "done"), [(0, True), (2, True), (10**9, False)])
def test_an_npu_is_asked_whether_a_stream_has_finished(monkeypatch, busy, done):
    """The queue is drained first, and what does not finish in time is waiting."""
    monkeypatch.setattr(_lab, "_PATIENCE", 0.02)
    stream = Stream(busy)
    assert NpuLab(object(), object()).finished(stream) is done
    assert stream.drained == 1


def test_an_npu_without_synchronous_streams_uses_ordinary_ones():
    """Old versions of torch_npu have one kind of stream only."""

    class Old:
        Stream = Event = Stream

    class New(Old):
        class SyncLaunchStream(Stream):
            pass

    assert type(NpuLab(object(), Old()).direct_stream()) is Stream
    assert type(NpuLab(object(), New()).direct_stream()) is New.SyncLaunchStream
    assert isinstance(NpuLab(object(), Old()).mark(), Stream)


# -- reports ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report():
    """Return the report of a few probes."""
    return Report(*run("simulated", probes=(*QUICK, BY_NAME["limit.events"])))


def changed(report, name, **changes):
    """Return the report with another result for a probe."""
    results = (attrs.evolve(one, **changes) if one.probe == name else one for one in report.results)
    return attrs.evolve(report, results=tuple(results))


def test_a_report_survives_its_file(tmp_path, report):
    """What is read is what was written."""
    path = tmp_path / "report.json"
    path.write_text(report.to_json())
    again = Report.read(path)
    assert again.to_json() == report.to_json()
    assert again.summary == {AGREES: 3, DIFFERS: 0, NOT_OBSERVABLE: 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        ("\x00", "is not JSON"),
        ("[]", "is no report"),
        ('{"format": "something else"}', "is no report"),
        ('{"format": "npugraph-strategies selftest", "format_version": 2}', "format version 2, expected 1"),
        ('{"format": "npugraph-strategies selftest", "format_version": 1}', "is damaged: KeyError at 'environment'"),
        (
            (
                '{"format": "npugraph-strategies selftest", "format_version": 1, "environment": {}, '
                '"results": [{"verdict": "maybe"}]}'
            ),
            "is damaged: ValueError at verdict 'maybe'",
        ),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path, text, problem):
    """The error names the file and what is wrong with it."""
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UnreadableReport, match=problem) as refused:
        Report.read(path)
    assert str(path) in str(refused.value)


def test_times_and_texts_are_no_differences(report):
    """Two runs of one device are the same."""
    other = changed(report, QUICK[1].name, seconds=9.0, steps=(Step("begin", "107031", "Other", "other words"),))
    assert differences(report, other) == ()


def test_a_difference_names_the_step_and_both_outcomes(report):
    """A step that one of them has not is a difference too."""
    other = changed(report, QUICK[1].name, steps=(Step("begin", "ok"), Step("end", "ok")))
    found = [attrs.astuple(one) for one in differences(report, other)]
    assert found == [(QUICK[1].name, "begin", "107031", "ok"), (QUICK[1].name, "end", None, "ok")]


def test_what_one_machine_cannot_observe_is_no_difference(report):
    """Devices are compared by what both did."""
    other = changed(report, QUICK[1].name, verdict=NOT_OBSERVABLE, steps=())
    assert differences(report, other) == differences(other, report) == ()


def test_a_probe_that_one_report_has_not_is_told(report):
    """Reports of different versions of this package are compared, and say so."""
    fewer = attrs.evolve(report, results=report.results[1:])
    (found,) = differences(fewer, report)
    assert attrs.astuple(found) == (QUICK[0].name, "the probe", None, AGREES)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def invoke(monkeypatch):
    """Run the command on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(cli, ["selftest", *map(str, arguments)])


@pytest.fixture
def stored(tmp_path, report):
    """Return a function that stores a report, changed if so wished, in a file."""

    def store(name, *change, **changes):
        path = tmp_path / name
        path.write_text((changed(report, *change, **changes) if change else report).to_json())
        return path

    return store


def test_the_table_ends_in_a_verdict(invoke):
    """All agree: the status is 0, and the last line says so."""
    result = invoke("--probe", "group.begin-outside", "--probe", "stream.pools")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "AS EXPECTED: 1 agrees, 0 differs, 1 not observable"
    assert "begin: 107029 or 107033" in result.stdout


def other_device(kind, *, probes, **_):
    """Run probes on a device that keeps an event's flag."""
    return {"runtime": kind}, tuple(run_probe(one, small(wait_consumes=False)) for one in probes)


def test_a_difference_is_shown_and_is_the_status(invoke, monkeypatch):
    """Some differ: the status is 1, and so says the last line."""
    monkeypatch.setattr(command_module, "run", other_device)
    result = invoke("--probe", "event.wait-consumes")
    assert result.exit_code == 1
    assert "second wait: passes" in result.stdout
    assert result.stdout.splitlines()[-1] == "DIFFERENT: 0 agrees, 1 differs, 0 not observable"


def test_json_and_file_are_the_report(invoke, tmp_path):
    """Standard output has the JSON that the file has."""
    path = tmp_path / "report.json"
    result = invoke("--probe", "group", "--json", "--output", path)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(path.read_text())
    assert {one.subject for one in Report.read(path).results} == {"group"}


def test_a_run_is_compared_with_a_report(invoke, stored):
    """Nothing differs between two runs of one device, whatever the report's other probes."""
    result = invoke("--probe", "capture.default-stream", "--compare", stored("a.json"))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "THE SAME: no outcome differs"


def test_two_reports_are_compared_without_a_run(invoke, stored, monkeypatch):
    """Differences of outcomes are shown, with both sides named by their files."""
    monkeypatch.setattr(command_module, "run", None)
    ours, theirs = stored("a.json"), stored("b.json", QUICK[1].name, steps=(Step("begin", "107027"),))
    result = invoke("--compare", ours, "--compare", theirs)
    assert result.exit_code == 1
    assert "capture.default-stream: begin" in result.stdout
    assert result.stdout.splitlines()[-1] == "DIFFERENT: 1 outcome(s) differ"
    found = json.loads(invoke("--compare", ours, "--compare", theirs, "--json").stdout)
    assert found["differences"] == [
        {"probe": "capture.default-stream", "what": "begin", "first": "107031", "second": "107027"}
    ]


def test_environments_are_compared_but_do_not_count(invoke, stored, tmp_path, report):
    """Another version is shown, the date is not, and the status is that of the outcomes."""
    other = tmp_path / "other.json"
    facts = {**report.environment, "torch": "9.9", "date": "tomorrow"}
    other.write_text(attrs.evolve(report, environment=facts).to_json())
    result = invoke("--compare", stored("a.json"), "--compare", other)
    assert result.exit_code == 0
    assert "9.9" in result.stdout
    assert "tomorrow" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--probe", "no-such"], "subjects are capture, "),
        (["--compare", "{a}", "--compare", "{a}", "--compare", "{a}"], "two to compare"),
        (["--compare", "{a}", "--compare", "{a}", "--output", "x.json"], "compared without one"),
        (["--compare", "{missing}"], "cannot be read"),
        (["--probe", "capture.is-told", "--output", "{missing}/x.json"], "cannot be written"),
    ],
)
def test_wrong_usage_is_refused(invoke, stored, tmp_path, arguments, problem):
    """The status is 2, and standard error says what is wrong."""
    places = {"a": stored("a.json"), "missing": tmp_path / "missing"}
    result = invoke(*(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


def test_without_a_device_the_command_says_why(invoke, monkeypatch):
    """The status is 2, and there is no traceback."""

    def unavailable(*_, **__):
        raise RuntimeUnavailable("the self-test", "torch_npu finds\nno NPU")

    monkeypatch.setattr(command_module, "run", unavailable)
    result = invoke("--runtime", "npu")
    assert result.exit_code == 2
    assert result.stderr == "Error: the self-test is not available here: torch_npu finds no NPU\n"


def test_a_result_that_did_not_run_has_no_steps():
    """It keeps what would have been expected."""
    result = not_run(QUICK[1], "for a reason")
    assert (result.verdict, result.steps, result.reason) == (NOT_OBSERVABLE, (), "for a reason")
    assert result.expected == QUICK[1].expected
