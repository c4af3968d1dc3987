// Command charts renders the Helm chart and the Kustomize overlays of deploy/, so that an API
// server can be asked about them ("make e2e"). Its tests hold them against each other: with the
// chart's defaults both are the same objects. It is a module of its own, because Helm is large.
package main
