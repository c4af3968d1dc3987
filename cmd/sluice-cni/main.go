// Command sluice-cni is a chained CNI plugin that blocks the interface of a pod until the agent
// enforces its policy.
package main

import "github.com/sluice-net/sluice/internal/cni"

func main() { cni.Main() }
