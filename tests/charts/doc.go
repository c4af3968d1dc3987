// Package charts holds the Helm chart and the Kustomize overlays of deploy/ against each other:
// with the chart's defaults both are the same objects. It is a module of its own, because Helm is
// large.
package charts
