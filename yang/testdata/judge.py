"""Judges documents by yangson.

The arguments are the folders of modules. The first two lines of the input are YANG
library data, each other line the number of one of these and a document in JSON; each
line of the output says what is wrong with the document, and is empty where it is right.
"""

import json
import sys

from yangson import DataModel
from yangson.enumerations import ContentType


def judge(model, text):
    try:
        # from_raw checks shapes and values, validate all else.
        model.from_raw(json.loads(text)).validate(ctype=ContentType.all)
    except Exception as wrong:  # yangson lets some of Python's own through
        return " ".join(f"{type(wrong).__name__}: {wrong}".split())
    return ""


def main():
    models = [DataModel(sys.stdin.readline(), sys.argv[1:]) for _ in range(2)]
    for line in sys.stdin:
        number, text = line.split(" ", 1)
        print(judge(models[int(number)], text))


main()
