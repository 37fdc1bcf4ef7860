// Runs before anything is drawn, so that a chosen theme does not flash in the other one.
(() => {
  try {
    const kept = localStorage.getItem("kb-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Where storage is forbidden the system decides.
  }
})();
