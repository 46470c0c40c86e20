#!/usr/bin/env bash
# What a container of the Millpond image does:
#   dispatcher ...   a dispatcher
#   executor         a Spark executor: how Spark starts its pods on Kubernetes
#   anything else    a command of `millpond`: run-application, list, ...
# Lines KEY=VALUE of the file $MILLPOND_SETTINGS_FILE become -D options of a dispatcher or an application.
set -euo pipefail

settings=()
if [ -n "${MILLPOND_SETTINGS_FILE:-}" ]; then
  while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in
      '' | '#'*) ;;
      *) settings+=(-D "$line") ;;
    esac
  done <"$MILLPOND_SETTINGS_FILE"
fi

case "${1:-}" in
  dispatcher)
    shift
    exec python -m millpond.dispatcher "${settings[@]}" "$@"
    ;;
  run-application)
    shift
    exec millpond run-application "${settings[@]}" "$@"
    ;;
  executor)
    # Spark hands Java's options over as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...
    options=()
    while IFS='=' read -r -d '' name value; do
      case "$name" in
        SPARK_JAVA_OPT_*) options["${name#SPARK_JAVA_OPT_}"]=$value ;;
      esac
    done < <(env -0)
    exec "$JAVA_HOME/bin/java" "${options[@]}" \
      "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:/opt/spark/jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec millpond "$@"
    ;;
esac
