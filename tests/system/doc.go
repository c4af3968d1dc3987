// Package system is the family of tests of what people install and run: programs as processes, a real
// Kubernetes, manifests, charts, images, alerts, guides, the page in a browser.
package system
