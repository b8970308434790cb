"use strict";

// Shows the OpenAPI document of this server, and sends requests that people try. All text is
// inserted as text, not as HTML. Requests have the credentials that the browser has for this
// server.

const methods = ["get", "put", "post", "patch", "delete"];
const maxFound = 100;
let doc;

// make creates an element. A property that is a function becomes an event listener.
function make(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const at = (id) => document.getElementById(id);

// resolve follows a reference. Members beside the reference override those of its target.
function resolve(value) {
  if (!value || !value.$ref) return value;
  const found = value.$ref.slice(2).split("/").reduce((part, name) => part[name], doc);
  return { ...resolve(found), ...value, $ref: undefined };
}

// operations lists all operations as {method, path, item, op}.
function operations() {
  return Object.entries(doc.paths).flatMap(([path, item]) =>
    methods.filter((method) => item[method]).map((method) => ({ method, path, item, op: item[method] })));
}

function schemaName(schema) {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf || schema.oneOf) return (schema.anyOf || schema.oneOf).map((one) => schemaName(resolve(one))).join(" or ");
  if (schema.type === "array" && schema.items) return "list of " + schemaName(resolve(schema.items));
  if (schema.enum) return schema.enum.join(" | ");
  return [schema.type || "any", schema.format && `(${schema.format})`, schema.readOnly && "read-only"].filter(Boolean).join(" ");
}

// schemaView shows a schema as nested lists. Objects are closed at first, because they can be
// deep.
function schemaView(given, depth) {
  const schema = resolve(given);
  const inner = schema.type === "array" ? resolve(schema.items) : schema;
  const list = make("ul");
  for (const [name, property] of Object.entries(inner.properties || {})) {
    const value = resolve(property);
    const below = value.type === "array" ? resolve(value.items) : value;
    const head = [make("code", {}, name), " ", make("span", { class: "dim" }, schemaName(value))];
    if ((inner.required || []).includes(name)) head.push(make("strong", {}, " required"));
    if (value.description) head.push(make("span", {}, " — " + value.description));
    list.append(make("li", {}, below.properties ? opening(head, () => schemaView(value, depth + 1), depth < 1) : make("span", {}, ...head)));
  }
  return list;
}

// opening creates a details element. Its content is created when it is first opened.
function opening(head, content, open) {
  const inside = make("div");
  const element = make("details", {}, make("summary", {}, ...head), inside);
  const fill = () => { if (element.open && !inside.hasChildNodes()) inside.append(...[content()].flat()); };
  element.addEventListener("toggle", fill);
  if (open) { element.open = true; fill(); }
  return element;
}

let fields = 0;

// field creates an input with a label, and a hint for screen readers.
function field(label, hint, input) {
  const id = "field" + ++fields;
  input.id = id;
  const parts = [make("label", { for: id }, label), input];
  if (hint) {
    input.setAttribute("aria-describedby", id + "hint");
    parts.push(make("div", { class: "dim", id: id + "hint" }, hint));
  }
  return make("div", {}, ...parts);
}

function parameterInput(schema) {
  if (!schema.enum) return make("input", { autocomplete: "off", spellcheck: "false" });
  return make("select", {}, make("option", { value: "" }, ""), ...schema.enum.map((value) => make("option", { value }, value)));
}

function parametersOf(one) {
  return [...(one.item.parameters || []), ...(one.op.parameters || [])].map(resolve);
}

// sample returns an example of a body, with required members and keys.
function sample(given) {
  const schema = resolve(given);
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf || schema.oneOf) return sample((schema.anyOf || schema.oneOf)[0]);
  switch (schema.type) {
    case "array": return [sample(schema.items)];
    case "integer": return schema.minimum > 0 ? schema.minimum : 0;
    case "boolean": return false;
    case "null": return null;
    case "string": return "";
  }
  const out = {};
  const names = Object.keys(schema.properties || {});
  const wanted = names.filter((name) => (schema.required || []).includes(name));
  for (const name of wanted.length ? wanted : names.slice(0, schema.minProperties || 0)) out[name] = sample(schema.properties[name]);
  return out;
}

// tryIt creates the form that sends a request.
function tryIt(one) {
  const inputs = parametersOf(one).map((parameter) => ({ parameter, input: parameterInput(resolve(parameter.schema) || {}) }));
  const form = make("form", { "aria-label": "Try " + one.method.toUpperCase() + " " + one.path });
  for (const { parameter, input } of inputs) {
    if (parameter.required) input.required = true;
    form.append(field(parameter.name, parameter.description, input));
  }
  const accept = make("input", { value: "application/json", autocomplete: "off" });
  form.append(field("Accept", "", accept));
  const body = bodyFields(one, form);
  const answer = make("div", { role: "status", "aria-live": "polite" });
  form.append(make("p", {}, make("button", { type: "submit" }, "Send " + one.method.toUpperCase())), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(one, inputs, accept.value, body, answer);
  });
  return form;
}

function bodyFields(one, form) {
  const content = one.op.requestBody && one.op.requestBody.content;
  if (!content) return null;
  const type = make("select", {}, ...Object.keys(content).map((value) => make("option", { value }, value)));
  const text = make("textarea", { spellcheck: "false" });
  const json = Object.keys(content).find((name) => name.endsWith("json"));
  type.value = json;
  text.value = JSON.stringify(sample(content[json].schema), null, 2);
  form.append(field("Content-Type", "", type), field("Body", "", text));
  return { type, text };
}

async function send(one, inputs, accept, body, answer) {
  let path = one.path;
  const query = new URLSearchParams();
  const headers = { Accept: accept };
  for (const { parameter, input } of inputs) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, () => encodeURIComponent(input.value));
    else if (input.value === "") continue;
    else if (parameter.in === "query") query.set(parameter.name, input.value);
    else headers[parameter.name] = input.value;
  }
  if (body) headers["Content-Type"] = body.type.value;
  const url = new URL(path + (query.size ? "?" + query : ""), location.origin);
  answer.replaceChildren("Sending");
  try {
    const response = await fetch(url, { method: one.method.toUpperCase(), headers, body: body ? body.text.value : undefined, cache: "no-store" });
    await show(response, url, answer);
  } catch (error) {
    answer.replaceChildren(make("p", {}, "The request could not be sent: " + error.message));
  }
}

async function show(response, url, answer) {
  const head = make("p", {}, make("strong", {}, `${response.status} ${response.statusText}`), " ", url.pathname + url.search);
  const headers = make("pre", { "aria-label": "Headers of the answer" }, [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n"));
  const text = make("pre", { "aria-label": "Body of the answer", tabindex: "0" });
  answer.replaceChildren(head, headers, text);
  if ((response.headers.get("Content-Type") || "").startsWith("text/event-stream")) return read(response, text);
  const body = await response.text();
  try { text.textContent = JSON.stringify(JSON.parse(body), null, 2); } catch { text.textContent = body; }
}

// read shows the events of a stream while the answer is on the page.
async function read(response, text) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    if (!text.isConnected) return reader.cancel();
    text.append(part.value);
  }
}

function operationView(one) {
  const head = [make("span", { class: "method " + one.method }, one.method.toUpperCase()), " ", make("code", {}, one.path), " ",
    make("span", { class: "dim" }, one.op.summary)];
  return opening(head, () => {
    const parts = [];
    if (one.op.description) parts.push(make("p", {}, one.op.description));
    parts.push(opening(["Try it"], () => tryIt(one)));
    if (one.op.requestBody) parts.push(...contentView("Request body", one.op.requestBody.content));
    for (const [status, response] of Object.entries(one.op.responses)) {
      const value = resolve(response);
      const content = value.content && status < "300" ? contentView("Response body", value.content) : [];
      parts.push(make("p", {}, make("strong", {}, status), " ", value.description), ...content);
    }
    return parts;
  });
}

// contentView shows the schema of the first JSON among the media types.
function contentView(title, content) {
  const json = Object.keys(content).find((name) => name.endsWith("json"));
  const schema = json && resolve(content[json].schema);
  const types = make("p", { class: "dim" }, title + ": " + Object.keys(content).join(", "));
  return schema && schema.properties ? [types, make("div", { class: "schema" }, schemaView(schema, 0))] : [types];
}

function showOperations(title, about, list) {
  at("group").textContent = title;
  at("group-about").textContent = about || "";
  at("operations").replaceChildren(...list.map(operationView));
}

function showGroup() {
  const name = decodeURIComponent(location.hash.slice(1));
  const tag = doc.tags.find((one) => one.name === name) || doc.tags.find((one) => one.name.endsWith(" pod:coe")) || doc.tags[0];
  for (const link of at("groups").querySelectorAll("a")) {
    if (link.textContent === tag.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showOperations(tag.name, tag.description, operations().filter((one) => one.op.tags.includes(tag.name)));
}

function search(text) {
  if (text === "") {
    at("found").textContent = "";
    return showGroup();
  }
  const found = operations().filter((one) => one.path.toLowerCase().includes(text.toLowerCase()));
  at("found").textContent = found.length + " found" + (found.length > maxFound ? `, the first ${maxFound} shown` : "");
  showOperations("Found", "", found.slice(0, maxFound));
}

async function start() {
  const response = await fetch(new URL("/openapi.json", location.origin));
  if (!response.ok) throw new Error(`/openapi.json answers ${response.status}`);
  doc = await response.json();
  at("about").textContent = doc.info.description;
  at("groups").append(...doc.tags.map((tag) => make("li", {}, make("a", { href: "#" + encodeURIComponent(tag.name) }, tag.name))));
  at("search").addEventListener("input", (event) => search(event.target.value.trim()));
  addEventListener("hashchange", () => {
    if (location.hash === "#main") return;
    at("search").value = "";
    at("found").textContent = "";
    showGroup();
    at("main").focus();
  });
  showGroup();
}

start().catch((error) => {
  at("group").textContent = "The document cannot be shown";
  at("group-about").textContent = error.message;
});
