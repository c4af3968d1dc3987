// Package repo is the family of tests of the repository itself: directions of imports, public names,
// links, the reference pages, compatible encodings, and whether the tests notice seeded faults.
package repo
