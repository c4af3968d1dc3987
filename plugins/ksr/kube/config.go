package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load returns how to come to the API server: as the file says, or, without one, as a
// pod of the cluster does. The agent is what the server sees in its logs.
func Load(kubeconfig, agent string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("API server: no --kubeconfig is given, and this is no pod of a cluster: %w", err)
	case err != nil:
		return nil, fmt.Errorf("API server: %w", err)
	}
	cfg.UserAgent = agent
	return cfg, nil
}
