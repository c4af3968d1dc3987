// Command sluice-ksr reflects the state of a Kubernetes cluster into etcd.
package main

import (
	"os"

	"github.com/sluice-net/sluice/internal/reflector"
)

func main() {
	os.Exit(reflector.Main(os.Args[1:], os.Stdout, os.Stderr))
}
