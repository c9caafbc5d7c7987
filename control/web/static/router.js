// Which page the address names: `#/services/web` is the page `services` with the part `web`. Other
// fragments (the skip link's) are none of its business.

/** The page and the rest of the present address. */
export function here() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { page, rest: rest.map(decode) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page. */
export function to(page, ...rest) {
  return `#/${[page, ...rest.map(encodeURIComponent)].join("/")}`;
}

/** Calls `go` now and whenever the address names another page. */
export function follow(go) {
  addEventListener("hashchange", () => {
    if (location.hash === "" || location.hash.startsWith("#/")) go(here());
  });
  go(here());
}
