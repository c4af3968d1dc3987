// Package device is an example of a renderer: it enforces policy in a device that has one table for
// each pod. docs/guide/embedding.md shows it.
package device
