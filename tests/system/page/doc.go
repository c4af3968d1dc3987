// Package page tests the page of package ui in a browser: headless Chromium, which playwright-core
// controls. "make test-page" runs it; without that, or without Chromium, it is skipped.
package page
