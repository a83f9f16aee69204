"""An OpenAI-compatible server that answers every call after the same time, for benchmarks: no model, no network.

    python -m benchmarks.latency_server --latency 0.2        prints its port, serves until it is stopped

Its one answer can be read by every role: agent, judge, extractor, selector. Embeddings are answered as well.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.command_line import REPO, command_of, parser

LESSON = {"title": "Read the task twice", "description": "Check what is asked.", "content": "Read it again, then act."}
ANSWER = {"thoughts": "Thought: it is clear.", "status": "success", "items": [LESSON], "index": 0}
TEXT = json.dumps(ANSWER) + "\nAction: say sesame\nThe answer is \\boxed{42}"


def reply(path: str, request: dict) -> bytes:
    """The body of an answer to a chat completion or an embedding, or of the list of models."""
    if path.endswith("/models"):
        return json.dumps({"object": "list", "data": [{"id": "fixed", "object": "model"}]}).encode()
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    if path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8] + [0.0] * 382}]
        return json.dumps({"object": "list", "model": "fixed", "data": data, "usage": usage}).encode()
    text = json.dumps(ANSWER) if "response_format" in request else TEXT
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "fixed", "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


async def serve(latency_s: float) -> None:
    """Serve on a free port of this machine and print it."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await asyncio.sleep(latency_s)
                data = reply(head.split(" ", 2)[1], json.loads(body or b"{}"))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def running(latency_s: float) -> Iterator[str]:
    """The server in a process of its own; gives its base URL."""
    command = command_of("benchmarks.latency_server", "--latency", latency_s)
    process = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--latency", type=float, default=0.2, help="seconds from request to answer")
    asyncio.run(serve(options.parse_args().latency))
