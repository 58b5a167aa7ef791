"""Trains fastText on folders of texts and prints its accuracy.

	fasttext_classes.py TRAIN TEST

needs fasttext-wheel. TRAIN and TEST have a folder of text files for each class.
Each line is a setting, its accuracy on TEST, and seconds of one thread.
"""
import os
import random
import re
import sys
import tempfile
import time

import fasttext


def read(folder):
    for label in sorted(os.listdir(folder)):
        for name in sorted(os.listdir(os.path.join(folder, label))):
            with open(os.path.join(folder, label, name), encoding="utf-8", errors="replace") as f:
                text = f.read().replace("<br />", " ").lower()
            yield "__label__" + label, " ".join(re.findall(r"[a-z0-9']+|[!?.,]", text))


train, test = list(read(sys.argv[1])), list(read(sys.argv[2]))
random.Random(1).shuffle(train)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "train.txt")
    with open(path, "w") as f:
        f.writelines(f"{label} {text}\n" for label, text in train)
    for setting in {}, dict(epoch=25), dict(epoch=25, wordNgrams=2), dict(epoch=25, wordNgrams=2, lr=0.5):
        begin = time.process_time()
        model = fasttext.train_supervised(path, thread=1, verbose=0, **setting)
        seconds = time.process_time() - begin
        right = sum(model.f.predict(text + "\n", 1, 0.0, "strict")[0][1] == label for label, text in test)
        print(f"{setting}: {right / len(test):.3f} in {seconds:.0f} s")
