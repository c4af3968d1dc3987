// Package shapes generates the worst manifests that one tenant can write: those that cost a node
// the most for their bytes.
//
// Every shape is a function of a size and of nothing else, so that figures can be compared. Each
// was found by looking for what a layer multiplies: rules by classes of addresses, lists by
// classes, selectors by pods, origins by spans. tests/bench/shapes prints what each costs.
package shapes
