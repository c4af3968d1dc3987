// Command report turns the output of "go test -bench", on its standard input, into
// tables in Markdown.
package main

import (
	"fmt"
	"os"

	"github.com/sluice-net/sluice/tests/bench"
)

func main() {
	if err := bench.Table(os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
