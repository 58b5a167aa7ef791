"""Vectors of a published encoder beside tf-idf: QMSum's marked turns, STS-B's pairs.

    python3 published_vectors.py FARFIELD MODEL qmsum/test.jsonl stsb/sts-test.csv

FARFIELD is the program, MODEL a folder or the name of a fetched model. numpy, scipy and
scikit-learn are needed. A turn is "speaker: content"; recall@10 is the share of the ten
places, or of all marked turns if there are fewer, that hold marked turns.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer


def embed(farfield, model, texts):
    """Return the vectors [texts,width] that farfield embed writes."""
    with tempfile.TemporaryDirectory() as folder:
        lines, out = os.path.join(folder, "lines.txt"), os.path.join(folder, "vectors.npy")
        with open(lines, "w", encoding="utf8") as f:
            f.writelines(text.replace("\n", " ") + "\n" for text in texts)
        subprocess.run([farfield, "embed", "--model", model, "--out", out, lines], check=True)
        return np.load(out)


def read_qmsum(path):
    """Return turns, their meetings, and queries with their meeting and marked turns."""
    turns, meetings, queries = [], [], []
    with open(path, encoding="utf8") as f:
        for number, line in enumerate(f):
            meeting, start = json.loads(line), len(turns)
            for turn in meeting["meeting_transcripts"]:
                turns.append(turn["speaker"] + ": " + turn["content"])
                meetings.append(number)
            for query in meeting["specific_query_list"]:
                marked = {start + i for a, b in query["relevant_text_span"] for i in range(int(a), int(b) + 1)}
                queries.append((query["query"], number, {i for i in marked if i < len(turns)}))
    return turns, np.array(meetings), queries


def print_recall(name, scores, meetings, queries):
    """Print recall@10 and the share of queries with a marked turn among ten."""
    for scope in ("meeting", "all"):
        recall, hit = [], []
        for row, (_, meeting, marked) in zip(scores, queries):
            row = np.where(meetings == meeting, row, -9) if scope == "meeting" else row
            found = len(marked & set(np.argsort(-row, kind="stable")[:10].tolist()))
            recall.append(found / min(10, max(1, len(marked))))
            hit.append(found > 0)
        print(f"{name}, {scope}: recall@10 {np.mean(recall):.3f}, queries with one {np.mean(hit):.3f}")


def main():
    farfield, model, qmsum, stsb = sys.argv[1:]
    turns, meetings, queries = read_qmsum(qmsum)
    asked = [query for query, _, _ in queries]
    for options in ({}, {"sublinear_tf": True, "stop_words": "english"}):
        words = TfidfVectorizer(**options)
        rows = words.fit_transform(turns)
        print_recall(f"tf-idf {options}", (words.transform(asked) @ rows.T).toarray(), meetings, queries)
    print_recall(model, embed(farfield, model, asked) @ embed(farfield, model, turns).T, meetings, queries)
    with open(stsb, encoding="utf8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    v = embed(farfield, model, [row[5] for row in rows] + [row[6] for row in rows])
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    similar = (v[: len(rows)] * v[len(rows) :]).sum(1)
    print(f"STS-B: Spearman {spearmanr(similar, [float(row[4]) for row in rows])[0]:.4f}")


main()
