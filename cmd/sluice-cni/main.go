// Command sluice-cni is a chained CNI plugin: pods have no traffic before their policy is enforced.
package main

import "github.com/sluice-net/sluice/internal/cni"

func main() { cni.Main() }
