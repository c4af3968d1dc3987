// Command sluice-cni is a chained CNI plugin that blocks a pod's interface until the agent enforces
// its policy; for VPP it also creates that interface.
package main

import "github.com/sluice-net/sluice/internal/cni"

func main() { cni.Main() }
