// An embedded page of results takes the colours of the site: its own switch is pressed wherever the two differ.
(() => {
  "use strict";
  const isDark = () => document.body.dataset.mdColorScheme === "slate";

  const follow = (frame) => {
    const page = frame.contentDocument;
    const button = page && page.getElementById("theme");
    if (!button) return;
    const own = page.documentElement.dataset.theme;
    const dark = own ? own === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    if (dark !== isDark()) button.click();
  };

  document.addEventListener("DOMContentLoaded", () => {
    const frames = [...document.querySelectorAll("iframe")];
    frames.forEach((frame) => { frame.addEventListener("load", () => follow(frame)); follow(frame); });
    new MutationObserver(() => frames.forEach(follow)).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  });
})();
