// Command sluice-agent enforces Kubernetes network policy on a node, in VPP or in the kernel.
package main

import (
	"os"

	"github.com/sluice-net/sluice/internal/agent"
)

func main() {
	os.Exit(agent.Main(os.Args[1:], os.Stdout, os.Stderr))
}
