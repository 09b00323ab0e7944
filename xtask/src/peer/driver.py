"""llama.cpp's side of `cargo xtask peer`: one JSON request per line on stdin, one JSON reply per line on stdout.

The first argument names the module that knows a binding; it has a class `Side` with a method for each request.
`protocol.rs` says what requests and replies hold.
"""

import importlib
import json
import os
import queue
import sys
import threading

REQUESTS = ("facts", "load", "complete", "tokenize", "render")


def read_requests(requests):
    for line in sys.stdin:
        requests.put(line)
    # The asking program is gone; whatever is being computed is for nobody.
    os._exit(0)


def main():
    # Libraries print to stdout; replies have a copy of it for themselves.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    requests = queue.Queue()
    threading.Thread(target=read_requests, args=(requests,), daemon=True).start()
    side = importlib.import_module(sys.argv[1]).Side()
    while True:
        request = json.loads(requests.get())
        name = request.pop("do")
        try:
            if name not in REQUESTS:
                raise NotImplementedError(f"request {name}")
            reply = {"ok": getattr(side, name)(**request)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


main()
