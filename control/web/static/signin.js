// Where a token is entered. It is tried before it is kept.

import { get, token } from "./api.js";
import { h } from "./dom.js";
import { problemBox } from "./parts.js";

/** Shows the page in `root`; calls `done` when the director took the token. */
export function signIn(root, done) {
  const input = h("input", {
    type: "password",
    id: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-hint",
  });
  const trouble = h("div");
  const submit = async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    token.set(input.value.trim());
    try {
      await get("/v1/status");
      done();
    } catch (problem) {
      token.forget();
      const wrong = problem.status === 401;
      if (wrong) [problem.title, problem.message] = ["", "The director does not know this token."];
      trouble.replaceChildren(problemBox(problem));
      input.focus();
    }
  };
  root.replaceChildren(
    h(
      "form",
      { class: "panel signin", onsubmit: submit },
      h("h1", { tabindex: "-1" }, "Sign in"),
      h(
        "p",
        {},
        "This director wants a token. ",
        h("code", {}, "sluice token new NAME --role read"),
        " makes one.",
      ),
      h("label", { for: "token" }, "Token"),
      input,
      h(
        "p",
        { class: "hint", id: "token-hint" },
        "It is kept in this tab until you close it or sign out.",
      ),
      trouble,
      h("button", { type: "submit", class: "main" }, "Sign in"),
    ),
  );
  input.focus();
}
