package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errNoSystemNamespace reports that a cluster has no UID to identify it.
var errNoSystemNamespace = errors.New("there is no namespace kube-system: name the cluster with --cluster")

// Cluster asks the API server for the UID of the namespace kube-system, which identifies the
// cluster by convention. It needs the right to list namespaces.
func (s *Source) Cluster(ctx context.Context) (string, error) {
	var list corev1.NamespaceList
	err := s.clients.core.Get().Resource("namespaces").Param("fieldSelector", "metadata.name="+metav1.NamespaceSystem).
		Do(ctx).Into(&list)
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	for i := range list.Items {
		if ns := &list.Items[i]; ns.Name == metav1.NamespaceSystem && ns.UID != "" {
			return string(ns.UID), nil
		}
	}
	return "", errNoSystemNamespace
}

// same verifies, before objects are removed, that the API server still serves the same cluster: a
// server that lost its data serves another one.
func (s *Source) same() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Probe)
	defer cancel()
	cluster, err := s.asks(ctx)
	switch {
	case errors.Is(err, errNoSystemNamespace):
		cluster = ""
	case err != nil:
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == "" {
		s.cluster = cluster
	}
	if cluster != s.cluster {
		return fmt.Errorf("the API server serves cluster %q, and served cluster %q before: the reflected state stays; restart sluice-ksr if this is intended",
			cluster, s.cluster)
	}
	return nil
}
