package renderertest

import (
	"flag"
	"os"
	"strconv"
)

// This file controls how much random searches and other long tests do. "make test" and "make race"
// do little, so that both finish soon on two processors. SLUICE_LONG=usual, as set by "make
// mutation", finds most faults. SLUICE_LONG=1, as set by "make soak", does everything.
const (
	fewChecks  = 25 // of each property checked by rapid, which checks a fifth with -short
	manyChecks = 100
)

func init() { // before flags are parsed, which take precedence
	_ = flag.Set("rapid.checks", strconv.Itoa(Extent(fewChecks, manyChecks, manyChecks)))
}

// Whole reports whether tests must be exhaustive, however long they take.
func Whole() bool { return os.Getenv("SLUICE_LONG") == "1" }

// Few reports whether tests must be short.
func Few() bool { return Extent(1, 0, 0) == 1 }

// Extent returns the amount of work for the current setting.
func Extent(few, usual, whole int) int {
	switch {
	case Whole():
		return whole
	case os.Getenv("SLUICE_LONG") == "usual":
		return usual
	}
	return few
}
