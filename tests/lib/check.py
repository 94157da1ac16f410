"""check.py: the frame of the tests in Python.

    import check
    @check.test
    def name_of_test(): check.equal(1 + 1, 2)
    check.main()

Every test runs, a failure prints where it was, and the last line is `N passed, N failed, N skipped`. Words on the command line
choose tests by a part of their name. main(finish) calls finish() behind the last test. check.skip(reason) skips the test; check.skip_all(reason) ends the program with 77.
"""
import os
import sys
import time
import traceback

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_tests = []


class Skip(Exception):
    pass


def test(function):
    _tests.append(function)
    return function


def skip(reason):
    raise Skip(reason)


def skip_all(reason):
    print("skipped: " + reason)
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def _short(value):
    text = repr(value)
    return text if len(text) < 1500 else text[:700] + " ... " + text[-700:]


def true(value, text="not true"):
    if not value:
        raise AssertionError("%s: %s" % (text, _short(value)))


def equal(got, wanted, text=""):
    if got != wanted:
        raise AssertionError("%s\n      got    %s\n      wanted %s" % (text, _short(got), _short(wanted)))


def has(whole, part, text=""):
    if part not in whole:
        raise AssertionError("%s\n      %s\n      is not in %s" % (text, _short(part), _short(whole)))


def has_not(whole, part, text=""):
    if part in whole:
        raise AssertionError("%s\n      %s\n      is in %s" % (text, _short(part), _short(whole)))


def wait_for(condition, seconds, text="condition"):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("%s does not come within %s s" % (text, seconds))
        time.sleep(0.02)


def main(finish=None):
    passed = failed = skipped = 0
    wanted = sys.argv[1:]
    for function in _tests:
        name = function.__name__
        if wanted and not any(word in name for word in wanted):
            continue
        start = time.monotonic()
        try:
            function()
            passed += 1
            word = "passed"
        except Skip as reason:
            skipped += 1
            word = "skipped: %s" % reason
        except Exception:
            failed += 1
            word = "FAILED\n" + "".join("    " + line + "\n" for line in traceback.format_exc().splitlines()[1:]).rstrip()
        print("  %s (%.2f s) ... %s" % (name, time.monotonic() - start, word), flush=True)
    if finish is not None:
        finish()
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped), flush=True)
    # threads of fakes must not keep the program
    os._exit(1 if failed else 0)
