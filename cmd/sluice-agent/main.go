// Command sluice-agent enforces Kubernetes network policy in a userspace vswitch.
package main

import (
	"os"

	"github.com/sluice-net/sluice/internal/agent"
)

func main() {
	os.Exit(agent.Main(os.Args[1:], os.Stdout, os.Stderr))
}
