// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("esker.theme");
  } catch {
    // Storage may be forbidden: the theme of the system is used.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
