package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load returns the configuration of the connection to the API server: that of the file or, without
// a file, that of a pod in the cluster. The server logs agent as the user agent.
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
