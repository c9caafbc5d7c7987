// Light or dark before anything is drawn, so that nothing flashes: the one script that is no
// module, since modules wait. It only carries over what app.js remembers; without it the system
// decides.
(() => {
  try {
    const theme = localStorage.getItem("sluice-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // A browser that keeps nothing: the system decides.
  }
})();
