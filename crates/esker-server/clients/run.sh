#!/usr/bin/env bash
# The official clients and a browser against a running server.
#
#   clients/run.sh [BINARY]      BINARY: the newest of target/{release,debug}/esker by default
#
# Starts the server with little more than the smallest budget, so that experts stream, on a port that is free; installs the
# packages that the suites name below target/clients; ends the server. Pictures of the page are in
# target/clients/screenshots. ESKER_CLIENTS limits it to some of: python node browser.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
work="${CARGO_TARGET_DIR:-$root/target}/clients"
suites="${ESKER_CLIENTS:-python node browser}"
key="key-for-the-tests"

binary="${1:-}"
if [ -z "$binary" ]; then
    for candidate in "${CARGO_TARGET_DIR:-$root/target}"/{release,debug}/esker; do
        if [ -x "$candidate" ] && [[ -z "$binary" || "$candidate" -nt "$binary" ]]; then binary="$candidate"; fi
    done
fi
[ -x "$binary" ] || { echo "no binary: build it with 'cargo build --release -p esker'" >&2; exit 1; }

has() { case " $suites " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
need() { # need COMMAND PACKAGE…
    command -v "$1" >/dev/null && return
    echo "installing ${*:2}"
    { apt-get update -q && apt-get install -q -y --no-install-recommends "${@:2}"; } >"$work/apt.log" 2>&1 \
        || { tail -n 20 "$work/apt.log" >&2; exit 1; }
}

mkdir -p "$work/screenshots"
need curl curl
if has python; then
    need python3 python3 python3-venv
    if ! cmp -s "$here/python/requirements.txt" "$work/venv/installed.txt"; then
        rm -rf "$work/venv"
        python3 -m venv "$work/venv"
        "$work/venv/bin/pip" install -q --disable-pip-version-check -r "$here/python/requirements.txt"
        cp "$here/python/requirements.txt" "$work/venv/installed.txt"
    fi
fi
if has node || has browser; then
    need node nodejs npm
    version="$(node --version)"
    version="${version#v}"
    [ "${version%%.*}" -ge 20 ] || { echo "node is $version, the clients need 20 or newer" >&2; exit 1; }
    mkdir -p "$work/node"
    # Modules are looked for beside the scripts.
    find "$work/node" -maxdepth 1 -type f -delete
    cp "$here"/node/* "$work/node/"
    if ! cmp -s "$here/node/package.json" "$work/node/node_modules/installed.json"; then
        (cd "$work/node" && npm install --no-package-lock --no-audit --no-fund --loglevel=error)
        cp "$here/node/package.json" "$work/node/node_modules/installed.json"
    fi
fi
if has browser; then need chromium chromium; fi

# A budget that is too small is refused with the smallest that would do.
smallest() {
    local refusal
    refusal="$(ESKER_API_KEY="$key" "$binary" serve --port 0 "${options[@]}" --memory 1M 2>&1 || true)"
    grep -oE -m 1 -e '--memory [0-9.]+[KMG]' <<<"$refusal" | cut -d ' ' -f 2 || { echo "$refusal" >&2; return 1; }
}

log="$work/server.log"
server=""
stop() {
    if [ -n "$server" ] && kill -TERM "$server" 2>/dev/null; then wait "$server" || true; fi
    server=""
}
trap stop EXIT

options=(--slots 4 --snapshot-memory 8M)
budget="$(smallest)"
# A third or so of the demo model's experts.
if [ "${budget: -1}" = M ]; then budget="$((${budget%M} + 8))M"; fi
ESKER_API_KEY="$key" "$binary" serve --port 0 "${options[@]}" --memory "$budget" >"$log" 2>&1 &
server=$!
url=""
for _ in $(seq 600); do
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; echo "the server ended" >&2; exit 1; }
    # The port is the system's choice; the log has it.
    if [ -z "$url" ]; then
        address="$(grep -oE -m 1 'listening.*127\.0\.0\.1:[0-9]+' "$log" | grep -oE '127\.0\.0\.1:[0-9]+' || true)"
        [ -z "$address" ] || url="http://$address"
    elif curl -fs "$url/health" >/dev/null; then
        break
    fi
    sleep 0.1
done
curl -fsS "$url/health"
echo " at $url with --memory $budget"

export ESKER_URL="$url" ESKER_KEY="$key" ESKER_SCREENSHOTS="$work/screenshots" PYTHONDONTWRITEBYTECODE=1
failed=0
if has python; then
    "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$here/python" || failed=1
fi
if has node; then
    (cd "$work/node" && node --test --test-reporter=spec openai.test.js anthropic.test.js) || failed=1
fi
if has browser; then
    (cd "$work/node" && node --test --test-reporter=spec browser.test.js) || failed=1
fi

kill -0 "$server" 2>/dev/null || { tail -n 50 "$log" >&2; echo "the server ended" >&2; exit 1; }
if grep -nE 'panicked|ERROR' "$log" >&2; then
    echo "the server's log has errors" >&2
    failed=1
fi
stop
[ "$failed" -eq 0 ] || { echo "the log of the server is in $log" >&2; exit 1; }
