// What is to be there before the modules, which wait: the one script that is none. Light or dark
// before anything is drawn, so that nothing flashes; it only carries over what app.js remembers,
// and without it the system decides. And what is said if a module does not come: none runs then.
(() => {
  try {
    const theme = localStorage.getItem("sluice-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // A browser that keeps nothing: the system decides.
  }
  const broken = (event) => {
    if (event.target?.tagName !== "SCRIPT") return;
    const view = document.getElementById("view");
    if (view) view.textContent = "The page did not come whole. Trying again by itself.";
    setTimeout(() => location.reload(), 2000);
  };
  // Such events do not bubble.
  addEventListener("error", broken, true);
})();
