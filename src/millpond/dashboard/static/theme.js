// Light or dark: the system's choice, unless the user has made another one, which the browser remembers.
(() => {
  const KEY = "millpond.theme";
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is forbidden: the choice lasts as long as the page
    }
  }

  function apply(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  function toggle() {
    const now = root.dataset.theme || (system.matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    const override = next === (system.matches ? "dark" : "light") ? null : next;
    apply(override);
    try {
      if (override) localStorage.setItem(KEY, override);
      else localStorage.removeItem(KEY);
    } catch {
      // as above
    }
  }

  apply(stored());
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme-toggle").addEventListener("click", toggle);
  });
})();
