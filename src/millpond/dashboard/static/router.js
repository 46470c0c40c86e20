// Which page the address names: the part behind `#`.

/** `pattern` like "/jobs/:jid/:tab?": its parameters, or null when the path is another one. */
export function match(pattern, path) {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  if (given.length > wanted.length) return null;
  const parameters = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index];
    if (part.startsWith(":")) {
      const optional = part.endsWith("?");
      if (value === undefined && !optional) return null;
      if (value !== undefined) parameters[part.slice(1, optional ? -1 : undefined)] = decode(value);
    } else if (part !== value) {
      return null;
    }
  }
  return parameters;
}

function decode(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value; // a lone % that somebody typed
  }
}

export function currentPath() {
  return location.hash.startsWith("#/") ? location.hash.slice(1) : "/";
}

/** The first of `routes` ([pattern, page]) that fits the address: {page, parameters}. */
export function find(routes) {
  for (const [pattern, page] of routes) {
    const parameters = match(pattern, currentPath());
    if (parameters) return { page, parameters };
  }
  return null;
}

export function link(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}
