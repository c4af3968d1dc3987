//go:build race

package e2e

// race says that the programs are built with the race detector, as the tests are.
const race = true
