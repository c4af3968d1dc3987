// Package spec is the family of tests that hold the product against the specification: written scenarios,
// random sequences of events, recorded conformance cases, fuzzing, and the law that a change drops
// nothing that old and new policy permit. They run the whole pipeline over dataplanes in this process.
package spec
