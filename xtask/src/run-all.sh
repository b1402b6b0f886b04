#!/bin/sh
# Runs every test and the reproduction on this machine, and goes on after a failure.
#   run-all.sh [OUT [OPTIONS OF reproduce...]]
# Logs, report.json and report.html go to OUT (default ./out). Exit 1 when anything failed.
set -u
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1
out=${1:-./out}
[ $# -gt 0 ] && shift
mkdir -p -- "$out" || exit 1
out=$(CDPATH='' cd -- "$out" && pwd) || exit 1
cd -- "$out" || exit 1
failed=0

# run NAME COMMAND...: the output goes to NAME.log
run() {
    name=$1
    shift
    printf '%s ... ' "$name"
    if "$@" >"$out/$name.log" 2>&1; then
        echo ok
    else
        echo "FAILED with exit code $?, see $out/$name.log"
        failed=$((failed + 1))
    fi
}

uname -a >machine.txt
if command -v nvidia-smi >/dev/null 2>&1; then
    nvidia-smi -q >>machine.txt 2>&1
fi
for test in "$here"/tests/*; do
    # Without any test the pattern itself is left, and running it fails.
    # One at a time: some of them time the GPU.
    run "$(basename -- "$test" | tr '*' _)" "$test" --nocapture --test-threads=1
done
run aa "$here/bin/timing" aa --json "$out/aa.json"
run reproduce "$here/bin/reproduce" --json "$out/report.json" --html "$out/report.html" "$@"

if [ "$failed" -gt 0 ]; then
    echo "$failed failed; everything is in $out"
    exit 1
fi
echo "all passed; everything is in $out"
