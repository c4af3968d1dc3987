// Package reference compares docs/reference/metrics.md with the metrics that programs
// register. The tests of the programs call it, because they alone have the registries.
package reference
