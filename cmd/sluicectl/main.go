// Command sluicectl asks a Sluice agent what is enforced and why, and tests policies.
package main

import (
	"os"

	"github.com/sluice-net/sluice/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
