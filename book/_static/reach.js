// An equation that is wider than the page scrolls; the keyboard reaches it as well.
function reach() {
  for (const box of document.querySelectorAll('mjx-container[display="true"]')) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", () => {
  if (window.MathJax) MathJax.startup.promise.then(reach);
  addEventListener("resize", reach);
});
