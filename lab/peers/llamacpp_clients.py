"""Compares farfield's server with llama.cpp's over one folder, in turns.

	llamacpp_clients.py FARFIELD FOLDER [THREADS...]

FARFIELD is the command. Prints a table: medians of the rounds of tokens a second, for each
second of the servers' processor time, and the median of the ratios of a round.
"""
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
VOCABULARY = 500  # ids that both have, behind special tokens and bytes


class Server:
    def __init__(self, args):
        begin = time.time()
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        self.start = time.time() - begin

    def processor(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, path, body):
        r = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(r) as a:
            return json.load(a)

    def end(self):
        self.process.kill()
        self.process.wait()


class Case:
    def __init__(self, name, clients, path, ours, theirs, tokens):
        self.name, self.clients, self.path, self.bodies, self.tokens = name, clients, path, (ours, theirs), tokens

    def run(self, server, which, seed):
        """Returns tokens a second of the wall clock and of the processor."""
        errors = []

        def one(i):
            try:
                server.ask(self.path, self.bodies[which](seed * 64 + i))
            except Exception as e:
                errors.append(e)

        begin, spent = time.time(), server.processor()
        threads = [threading.Thread(target=one, args=(i,)) for i in range(self.clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if errors:
            raise errors[0]
        n = self.clients * self.tokens
        return n / (time.time() - begin), n / max(server.processor() - spent, 0.01)


def prompt(seed, n):
    """Returns ids that no other seed begins with."""
    return [1] + [259 + (seed * 7919 + i * (31 + seed % 97)) % (VOCABULARY - 259) for i in range(n - 1)]


def completion(n, drawn):
    ours = lambda seed: {"prompt": prompt(seed, n), "max_tokens": drawn, "temperature": 0}
    theirs = lambda seed: {"prompt": prompt(seed, n), "max_tokens": drawn, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    return ours, theirs


def words(seed):
    return " ".join(["the dog", "a girl", "went", "to the park", "and saw", "big"][(seed * 7 + i * (1 + seed % 5)) % 6] for i in range(24))


def main():
    farfield, folder = sys.argv[1:3]
    print("| case | threads | farfield | llama.cpp | farfield / llama.cpp | the same by processor time |\n|---|--:|--:|--:|--:|--:|")
    for threads in [int(t) for t in sys.argv[3:]] or [1, 2]:
        ours = [farfield, "serve", "--model", folder, "--addr", "127.0.0.1:0", "--threads", str(threads)]
        peer = [sys.executable, os.path.join(HERE, "llamacpp_server.py"), folder, str(threads), "8"]
        drawn = int(os.environ.get("DRAWN", "32"))
        long = completion(int(os.environ.get("PROMPT", "512")), 1)
        text = lambda seed: {"input": words(seed)}
        cases = [Case("decoding, 1 client", 1, "/v1/completions", *completion(8, drawn), drawn),
                 Case("decoding, 8 clients", 8, "/v1/completions", *completion(8, drawn), drawn),
                 Case("prefill, 1 client", 1, "/v1/completions", *long, int(os.environ.get("PROMPT", "512")))]
        compare(ours, peer, cases, threads)
        compare(ours, peer + ["embeddings"], [Case("embeddings, 1 client (texts)", 1, "/v1/embeddings", text, text, 1),
                                              Case("embeddings, 8 clients (texts)", 8, "/v1/embeddings", text, text, 1)], threads)
    starts = [[], []]
    for _ in range(ROUNDS):
        for i, args in enumerate((ours, peer)):
            begin = time.time()
            s = Server(args)
            s.ask("/v1/completions", {"prompt": "Once", "max_tokens": 1})
            starts[i].append(time.time() - begin)
            s.end()
    a, b = map(statistics.median, starts)
    print(f"| start to first answer, s | {threads} | {a:.2f} | {b:.2f} | {a / b:.2f} | |")


def compare(ours, peer, cases, threads):
    servers = Server(ours), Server(peer)
    for case in cases:
        wall, spent = ([], []), ([], [])
        for round in range(ROUNDS + 1):
            for which in (0, 1):
                x, y = case.run(servers[which], which, round)
                if round > 0:
                    wall[which].append(x)
                    spent[which].append(y)
        ratio = [statistics.median(a / b for a, b in zip(*x)) for x in (wall, spent)]
        print(f"| {case.name} | {threads} | {statistics.median(wall[0]):.1f} | {statistics.median(wall[1]):.1f} | {ratio[0]:.2f} | {ratio[1]:.2f} |", flush=True)
    for s in servers:
        s.end()


main()
