#!/bin/sh
# Check the types and run the whole suite on two cores, in lanes side by side: most tests with real
# processes wait more than they compute, and the pure ones only compute. The lane in front is seen at
# once, the others when it is through. Usage: whole.sh PYTHON [PYTEST ARGUMENTS]
python=$1
shift
logs=$(mktemp -d)
lanes= types=
# Many processes import the package: compiled once, that costs each 0.3 s, else 0.8 s. Compiled where
# pip does it, what it has compiled is not compiled again.
unset PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX
trap 'kill $types $lanes 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

begin() {
  name=$1 folders=$2
  shift 2
  # shellcheck disable=SC2086 # Several folders.
  "$python" -m pytest $folders "$@" >"$logs/$name" 2>&1 &
  lanes="$lanes $!"
}

"$(dirname "$python")/mypy" >"$logs/types" 2>&1 &
types=$!
begin simulation tests/simulation "$@"
begin pure "tests/unit tests/property tests/fuzz" "$@"
begin commands tests/commands "$@"
begin documents tests/documents "$@"
begin spark tests/spark "$@"
"$python" -m pytest tests/integration "$@"
codes=$?
for lane in $lanes; do
  wait "$lane"
  codes="$codes $?"
done
wait "$types"
types_code=$?
cat "$logs"/pure "$logs"/simulation "$logs"/commands "$logs"/documents "$logs"/spark "$logs"/types
# 5: the arguments choose no test of a lane, which is fine if another has some.
worst=5
for code in $codes; do
  [ "$code" -eq 5 ] && continue
  [ "$worst" -eq 5 ] || [ "$worst" -eq 0 ] && worst=$code
done
[ "$worst" -eq 0 ] && worst=$types_code
exit "$worst"
