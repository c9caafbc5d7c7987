// Making elements. Whatever comes from the director becomes a text node or an attribute's value,
// never markup: no function here parses HTML, and the content security policy forbids it as well.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element: `h("button", { class: "plain", onclick: close }, "Close")`. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets an element's text, and leaves it alone if that is what it says already. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Says something to those who use a screen reader, and shows it for some seconds. */
export function announce(text, kind = "good") {
  const note = h("p", { class: `note ${kind}` }, text);
  document.getElementById("told").append(note);
  setTimeout(() => note.remove(), 8000);
}

let lastId = 0;

/** An id that no other element has. */
export function newId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}
