"""A class archive (Java's class data sharing) for Spark: with it, Spark starts about a third faster.

`millpond prepare` makes it once per version of Java and Spark. It is in the virtual environment, or in the
user's cache folder if there is none. Without it everything works, but starts more slowly.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from millpond.errors import SetupError
from millpond.executors.spark.java import Java, find_java

_SAMPLE_JOB = """
from millpond.common import Configuration
from millpond.datastream import StreamExecutionEnvironment
settings = {"spark.driver.extraJavaOptions": "%s", "millpond.master": "local[2]"}
configuration = Configuration.from_dict(settings)
environment = StreamExecutionEnvironment.get_execution_environment(configuration)
words = environment.from_collection(["a", "b", "a"]).map(lambda word: (word, 1))
assert len(list(words.key_by(lambda pair: pair[0]).sum(1).execute_and_collect())) == 3
"""


def spark_home() -> Path:
    """Return the folder of the Spark that PySpark starts: $SPARK_HOME, or PySpark's own."""
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def class_path() -> str:
    """Return the class path that Spark's launcher builds. An archive fits only the one it was made for."""
    home = spark_home()
    first = sorted((home / "jars").glob("slf4j-api-*.jar"))
    return ":".join([str(home / "conf"), *(str(jar) for jar in first), str(home / "jars" / "*")])


def archive_path(java: Java) -> Path:
    """Return where the archive for this Java and the installed Spark is, or would be."""
    import pyspark

    text = f"{java.executable}|{java.version}|{pyspark.__version__}|{class_path()}"
    name = f"spark-{pyspark.__version__}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsa"
    return prepared_folder() / name


def prepared_folder() -> Path:
    """Return the folder for files that are made once for this Python."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "millpond"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "millpond"


def java_options(java: Java) -> str:
    """Return the options that make Java use the archive; "" if there is no archive."""
    path = archive_path(java)
    return f"-XX:SharedArchiveFile={path} -Xshare:auto" if path.exists() else ""


def make_archive(base_options: str) -> Path:
    """Run a small job to see which classes are needed, archive them, and return the path of the archive. This
    takes about a minute, unless there is an archive already. Raises SetupError if it fails."""
    java = find_java()
    path = archive_path(java)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="millpond-classes-") as folder:
        classes = Path(folder) / "classes"
        options = f"{base_options} -XX:DumpLoadedClassList={classes}"
        _run([sys.executable, "-c", _SAMPLE_JOB % options], "the sample job")
        aside = path.with_suffix(f".{os.getpid()}")
        _run(
            [
                java.executable,
                "-Xshare:dump",
                "-XX:+UseSerialGC",
                f"-XX:SharedClassListFile={classes}",
                f"-XX:SharedArchiveFile={aside}",
                "-cp",
                class_path(),
            ],
            "archiving classes",
        )
        os.replace(aside, path)
    return path


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise SetupError(f"Making Spark's class archive failed in {what}:\n{tail}")
