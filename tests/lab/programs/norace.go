//go:build !race

package programs

// race says that the programs are built with the race detector, as the test is.
const race = false
