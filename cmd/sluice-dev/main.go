// Command sluice-dev is sluice-agent with an etcd in it, which the command dev needs. "sluice-agent
// dev" runs it.
package main

import (
	"os"

	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/agent/devstore"
)

func main() {
	os.Exit(agent.DevMain(os.Args[1:], devstore.Start, os.Stdout, os.Stderr))
}
