// Command sluice-neutron enforces the network policy of a whole Kubernetes cluster by security
// groups of OpenStack Neutron.
package main

import (
	"os"

	"github.com/sluice-net/sluice/internal/agent"
)

func main() {
	os.Exit(agent.NeutronMain(os.Args[1:], os.Stdout, os.Stderr))
}
