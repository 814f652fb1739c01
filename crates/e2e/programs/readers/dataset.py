# Runs the statements of its input, which null bytes separate, and prints the rows of each as a line of JSON.
import json
import sys

import duckdb

database = duckdb.connect()
database.execute("SET TimeZone = 'UTC'")
for statement in sys.stdin.read().split("\0"):
    cursor = database.execute(statement)
    names = [column[0] for column in cursor.description]
    print(json.dumps([dict(zip(names, row)) for row in cursor.fetchall()], default=str))
