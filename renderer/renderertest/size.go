package renderertest

import (
	"flag"
	"os"
	"strconv"
)

// How much the random searches and other long tests do is decided here. "make test" and
// "make race" draw little, so that both end soon on two processors; SLUICE_LONG=usual, which
// "make mutation" sets, draws as much as finds most faults, and SLUICE_LONG=1, which
// "make soak" sets, draws everything.
const (
	fewChecks  = 25 // of each property that rapid checks; with -short it checks a fifth
	manyChecks = 100
)

func init() { // before the command line is read, which prevails
	_ = flag.Set("rapid.checks", strconv.Itoa(Extent(fewChecks, manyChecks, manyChecks)))
}

// Whole reports whether everything is asked, however long that takes.
func Whole() bool { return os.Getenv("SLUICE_LONG") == "1" }

// Few reports whether little is drawn.
func Few() bool { return Extent(1, 0, 0) == 1 }

// Extent returns how much a test does.
func Extent(few, usual, whole int) int {
	switch {
	case Whole():
		return whole
	case os.Getenv("SLUICE_LONG") == "usual":
		return usual
	}
	return few
}
