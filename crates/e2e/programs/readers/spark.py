# Has Spark, as a cluster on this machine, read a dataset and run the statements of its input, which null bytes separate. Prints the rows of each as a line of JSON.
import json
import sys

from pyspark.sql import SparkSession

settings = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
}
builder = SparkSession.builder.master("local-cluster[1,1,512]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.read.parquet(sys.argv[1]).createOrReplaceTempView("calls")
for statement in sys.stdin.read().split("\0"):
    print(json.dumps([row.asDict() for row in spark.sql(statement).collect()], default=str), flush=True)
spark.stop()
