"""A class archive (Java's class data sharing) for Spark: starts Spark about a third faster.

`millpond prepare` makes it once per Java and Spark version. It lives in the virtual environment, or
in the user's cache folder if there is none. Without it everything works, only slower to start.
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
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def class_path() -> str:
    """The class path Spark's launcher builds; an archive only fits the one it was made for."""
    home = spark_home()
    first = sorted((home / "jars").glob("slf4j-api-*.jar"))
    return ":".join([str(home / "conf"), *(str(jar) for jar in first), str(home / "jars" / "*")])


def archive_path(java: Java) -> Path:
    import pyspark

    text = f"{java.executable}|{java.version}|{pyspark.__version__}|{class_path()}"
    name = f"spark-{pyspark.__version__}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsa"
    return prepared_folder() / name


def prepared_folder() -> Path:
    """Where what is made once for this Python lives."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "share" / "millpond"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "millpond"


def java_options(java: Java) -> str:
    """The options that make Java use the archive; empty if there is none."""
    path = archive_path(java)
    return f"-XX:SharedArchiveFile={path} -Xshare:auto" if path.exists() else ""


def make_archive(base_options: str) -> Path:
    """Run a small job to see which classes are needed, then archive them. Takes about a minute."""
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
