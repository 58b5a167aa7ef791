// Package browser walks the page of farfield serve with Chromium. It is a module of its
// own, so that farfield does not need chromedp. The step lab of .ci/run runs it.
package browser
