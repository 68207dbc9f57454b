import sys

texts = sys.argv[1:]
