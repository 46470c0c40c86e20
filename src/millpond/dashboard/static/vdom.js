// Pages are functions from data to a tree of plain objects; `patch` changes the document to look like it. Nodes that
// stay the same are left alone, so nothing flickers and focus, selection and scroll positions survive every poll.
//
// Text only ever becomes text nodes, and attributes are set one by one: names of jobs, keys and errors are whatever users
// wrote, and none of it is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `props`: attributes, `on<event>` functions, `style` (an object), and `key` to find it again in a list. */
export function h(tag, props, ...children) {
  return node(tag, false, props, children);
}

/** The same for SVG. */
export function s(tag, props, ...children) {
  return node(tag, true, props, children);
}

function node(tag, svg, props, children) {
  const { key, ...rest } = props || {};
  const flat = children.flat(Infinity).filter((child) => child != null && child !== false);
  return { tag, svg, key, props: rest, children: flat };
}

/** Makes the children of `parent` those of the tree (one node, or a list). */
export function patch(parent, tree) {
  const children = [tree].flat(Infinity).filter((child) => child != null && child !== false);
  patchChildren(parent, children);
}

/** A new element, outside of any page. */
export function create(child) {
  if (typeof child !== "object") return document.createTextNode(String(child));
  const element = child.svg ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  element.vkey = child.key;
  element.vprops = {};
  update(element, child);
  return element;
}

function patchChildren(parent, children) {
  const wanted = new Set(children.map((child) => child.key).filter((key) => key !== undefined));
  const keyed = new Map();
  for (const old of [...parent.childNodes]) {
    if (old.vkey === undefined) continue;
    if (wanted.has(old.vkey)) keyed.set(old.vkey, old);
    else old.remove(); // first, so that those that stay need not be moved around it
  }
  let cursor = parent.firstChild;
  for (const child of children) {
    const found = child.key === undefined ? cursor : keyed.get(child.key);
    if (found && same(found, child)) {
      if (found === cursor) cursor = cursor.nextSibling;
      else parent.insertBefore(found, cursor);
      update(found, child);
    } else {
      parent.insertBefore(create(child), cursor);
    }
  }
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
}

function same(old, child) {
  if (typeof child !== "object") return old.nodeType === Node.TEXT_NODE;
  return old.localName === child.tag && old.vkey === child.key && old.vprops !== undefined;
}

function update(element, child) {
  if (typeof child !== "object") {
    const text = String(child);
    if (element.data !== text) element.data = text;
    return;
  }
  updateProps(element, child.props);
  patchChildren(element, child.children);
}

function updateProps(element, props) {
  const before = element.vprops;
  for (const name of Object.keys(before)) {
    if (!(name in props)) setProp(element, name, null, before[name]);
  }
  for (const [name, value] of Object.entries(props)) {
    if (name === "style" || before[name] !== value) setProp(element, name, value, before[name]);
  }
  element.vprops = props;
}

function setProp(element, name, value, before) {
  if (name.startsWith("on")) {
    element[name] = value; // a function, never text
  } else if (name === "style") {
    setStyle(element, value || {}, before || {});
  } else if (name === "checked" || name === "value") {
    element[name] = value ?? "";
  } else if (value == null || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

// Property by property: a style attribute would be refused by the Content-Security-Policy.
function setStyle(element, style, before) {
  for (const name of Object.keys(before)) {
    if (!(name in style)) element.style.removeProperty(name);
  }
  for (const [name, value] of Object.entries(style)) {
    if (before[name] !== value) element.style.setProperty(name, value);
  }
}
