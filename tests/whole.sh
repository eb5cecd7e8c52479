#!/bin/sh
# Run the whole suite on two cores: the tests of the pure parts and of Spark, which need a processor
# and nothing else, beside those with real processes and networks. Usage: whole.sh PYTHON [PYTEST ARGUMENTS]
python=$1
shift
log=$(mktemp)
"$python" -m pytest tests/unit tests/property tests/fuzz tests/simulation tests/spark "$@" >"$log" 2>&1 &
pure=$!
trap 'kill $pure 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM
"$python" -m pytest tests/integration "$@"
real_code=$?
wait $pure
pure_code=$?
cat "$log"
# 5: the arguments choose no test of one half, which is fine if the other half has some.
[ $real_code -eq 5 ] && exit $pure_code
[ $pure_code -eq 5 ] && exit $real_code
[ $real_code -eq 0 ] && exit $pure_code
exit $real_code
