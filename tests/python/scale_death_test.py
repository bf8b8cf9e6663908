"""Shared jobs whose workers, driver or disk fail, or whose workers lie: every line once all the same."""
import collections
import os
import random
import re
import signal
import subprocess
import sys
import textwrap

import forebay
from conftest import HANGS, LLAMA, begun, interrupted, wait_until
from forebay import scale
from scale_jobs import SHARED, answers, lines, shared


class Killers(scale.LocalWorkers):
    """Kills or stops its processes at random moments, as soon as results came since the last time. Who is stopped is continued
    when others have answered a line that it holds."""

    def __init__(self, model, how, rng, most):
        super().__init__(model)
        self.how, self.rng, self.left, self.done, self.held, self.deaths = how, rng, most, False, {}, collections.Counter()
        self.sent, self.lost, self.killed, self.stopped, self.late, self.kept = 0, 0, set(), set(), {}, []

    def start(self, process, arguments):
        self.held[process] = set()
        return super().start(process, arguments)

    def send(self, process, lines):
        numbers = {number for number, _ in lines}
        # At the end idle ones take lines that others hold and are late with; those are not sent for a death.
        self.sent += len(numbers - set().union(*(self.held[each] for each in self._processes)))
        self.held[process] |= numbers
        super().send(process, lines)

    def poll(self, seconds):
        events = super().poll(min(seconds, 0.02))
        if self.late:  # The others are held up, so that the job does not end before the late one speaks.
            self.kept += [event for event in events if event[0] not in self.late]
            events = [event for event in events if event[0] in self.late]
        else:
            events, self.kept = [*self.kept, *events], []
        for process, kind, texts in events:
            if kind == "done":
                numbers = {int(text.split(b"_", 3)[2]) - 1 for text in texts}
                self.held[process] -= numbers
                self.done = self.done or bool(texts)
                for each in [each for each in self.stopped - {process} if self.held[each] & numbers]:
                    self.stopped.remove(each)
                    self.late[each] = self.held[each] & numbers
                    os.kill(self._processes[each][0].pid, signal.SIGCONT)
                if self.late.get(process, set()) & numbers:
                    del self.late[process]
        # A line that three held when they died is blamed for it.
        victims = [process for process in sorted(self._processes) if all(self.deaths[line] < 2 for line in self.held[process])]
        if self.how == "stop":  # Of some lines the results may be under way.
            victims = [process for process in victims if len(self.held[process]) >= 8]
        if self.left and self.done and victims and self.rng.random() < 0.3:
            self.left, self.done = self.left - 1, False
            victim = self.rng.choice(victims)
            self.deaths.update(self.held[victim])
            process, _ = self._processes[victim]
            os.kill(process.pid, signal.SIGKILL if self.how == "kill" else signal.SIGSTOP)
            (self.stopped if self.how == "stop" else self.killed).add(victim)
        return events

    def stop(self, process):
        # Between its kill and this it may have been sent more.
        if process in self.killed:
            self.lost += len(self.held[process])
            self.killed.remove(process)
        super().stop(process)


def test_workers_may_die_at_any_moment(run, tmp_path):
    job = run(lines(1000))
    whole = answers(job.output)
    killed, seed, most = 0, 0, int(os.environ.get("FOREBAY_KILLS", 100))  # tools/soak.sh: 2,000
    while killed < most:
        seed += 1
        assert seed < most, f"{killed} kills: jobs end before they are disturbed"
        workers = Killers(LLAMA, "kill", random.Random(seed), most - killed)
        output, summary = shared(job, tmp_path, f"killed-{seed}.jsonl", workers=workers, least_lines=8, most_lines=16)
        # Lines that three held when they died are blamed for it. The same call tries them again.
        if any(b'"code":"worker_died"' in text for text in answers(output).values()):
            shared(job, tmp_path, f"killed-{seed}.jsonl", retry_failed=True)
        assert answers(output) == whole
        assert summary["num_requests"] == 1000
        # What the dead had not answered was computed again, and nothing else.
        assert workers.sent - 1000 <= workers.lost
        killed = most - workers.left
        os.remove(output)
    print(f"{killed} kills over {seed} jobs of 1,000 requests: 0 lost, 0 doubled, 0 differing")


def test_a_worker_that_is_stopped_and_continued(run, tmp_path):
    # So many that the rest takes longer than the silence.
    job = run(lines(3000, tokens=40))
    workers = Killers(LLAMA, "stop", random.Random(5), 1)
    output, summary = shared(job, tmp_path, workers=workers, least_lines=8, most_lines=16, silent_seconds=0.7)
    assert workers.left == 0 and not workers.stopped
    assert answers(output) == answers(job.output)
    assert summary["num_requests"] == 3000
    # Its late results were compared, and dropped.
    assert summary["computed_twice"] > 0


class Liars(scale.LocalWorkers):
    """Changes what comes back."""

    def __init__(self, model, change):
        super().__init__(model)
        self.change = change

    def poll(self, seconds):
        return [(process, kind, self.change(process, value) if kind == "done" else value) for process, kind, value in super().poll(seconds)]


def test_what_is_no_answer_is_refused(run, tmp_path):
    job = run(lines(80))
    first = open(job.output, "rb").readline().rstrip(b"\n")

    def change(process, texts):
        # Garbage, a line that the worker may not hold, one of another job, and two in one.
        other = re.sub(rb"_[0-9a-f]{16}-", b"_0123456789abcdef-", first, count=1)
        return [*texts, b"garbage", b"", first, other, b"\n".join([first, first])] if texts else texts

    output, summary = shared(job, tmp_path, workers=Liars(LLAMA, change))
    assert answers(output) == answers(job.output)
    assert summary["refused"] > 0


def test_a_line_at_which_workers_die_is_an_error(run, tmp_path):
    job = run(lines(40))
    bad = 17

    class Deadly(scale.LocalWorkers):
        def send(self, process, given):
            if any(number == bad for number, _ in given):
                self._processes[process][0].kill()
            super().send(process, given)

    output, summary = shared(job, tmp_path, workers=Deadly(LLAMA), least_lines=4, most_lines=4)
    found, whole = answers(output), answers(job.output)
    assert b"worker_died" in found.pop(bad + 1)
    del whole[bad + 1]
    assert found == whole
    assert [(each["code"], each["count"], each["first_line"]) for each in summary["failures"] if each["code"] == "worker_died"] == [("worker_died", 1, bad + 1)]


def test_the_driver_may_die_and_workers_end(run, tmp_path):
    job = run(lines(1000, tokens=80))
    output = str(tmp_path / "mine.jsonl")
    code = f"""
        from forebay import scale
        scale.run_batch({job.input!r}, {output!r}, {LLAMA!r}, **{SHARED!r})
        """
    process = begun(code, output)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout.split()
    assert len(children) == 2
    process.kill()
    process.communicate()
    wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), 30)
    assert 0 < len(answers(output, torn=True)) < 1000
    scale.run_batch(job.input, output, LLAMA, **SHARED)
    assert answers(output) == answers(job.output)


def test_the_driver_and_its_workers_may_die_at_any_moment(run, tmp_path):
    job, rng = run(lines(1000, tokens=60)), random.Random(11)
    output, whole = str(tmp_path / "mine.jsonl"), answers(job.output)
    kills, deaths = 0, 0
    while kills < int(os.environ.get("FOREBAY_DRIVER_KILLS", 5)):  # tools/soak.sh: 200
        code = f"""
            import random, sys
            sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
            from scale_death_test import LLAMA, SHARED, Killers, scale
            class Told(Killers):
                def stop(self, process):
                    print(process, flush=True)
                    super().stop(process)
            scale.run_batch({job.input!r}, {output!r}, LLAMA, workers=Told(LLAMA, "kill", random.Random({rng.random()}), 3), **SHARED)
            """
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
        enough = size_of(output) + rng.randrange(1, 60000)
        wait_until(lambda: process.poll() is not None or size_of(output) > enough, HANGS)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        process.kill()
        deaths += len(process.communicate()[0].split())
        wait_until(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), 30)
        assert process.returncode in (0, -signal.SIGKILL)
        kills += process.returncode != 0
        found = answers(output, torn=True)
        # Lines that three held when they died are blamed for it.
        differing = [text for line, text in found.items() if text != whole[line]]
        assert all(b'"code":"worker_died"' in text for text in differing), differing
        if len(found) == 1000:  # and from the beginning
            os.remove(output)
    assert deaths > 0, "no worker died before its driver did"
    shared(job, tmp_path, "mine.jsonl", retry_failed=True)
    assert answers(output) == whole
    print(f"{kills} kills of drivers, before which {deaths} of their workers were killed")


def size_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def test_control_c_drains(run, tmp_path):
    job = run(lines(1000, tokens=80))
    output = str(tmp_path / "mine.jsonl")
    call = f"scale.run_batch({job.input!r}, {output!r}, {LLAMA!r}, **{SHARED!r})"
    interrupted("from forebay import scale", call, output)
    found, whole = answers(output), answers(job.output)
    assert 0 < len(found) < 1000 and all(whole[line] == found[line] for line in found)


def test_a_full_disk_ends_the_job_and_it_goes_on(run, tmp_path):
    job = run(lines(300))
    output = str(tmp_path / "mine.jsonl")
    code = f"""
        import resource
        import forebay
        from forebay import scale
        class Workers(scale.LocalWorkers):
            def start(self, process, arguments):
                # The limit is the driver's alone.
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                name = super().start(process, arguments)
                resource.setrlimit(resource.RLIMIT_FSIZE, (40000, resource.RLIM_INFINITY))
                return name
        try:
            scale.run_batch({job.input!r}, {output!r}, {LLAMA!r}, workers=Workers({LLAMA!r}), **{SHARED!r})
        except forebay.Error as error:
            print(error.code)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, timeout=HANGS)
    assert done.stdout == "results_io\n"
    found, whole = answers(output), answers(job.output)
    assert 0 < len(found) < 300 and all(whole[line] == found[line] for line in found)
    assert scale.run_batch(job.input, output, LLAMA, **SHARED)["num_resumed"] == len(found)
    assert answers(output) == whole
