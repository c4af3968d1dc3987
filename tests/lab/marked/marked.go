// Package marked adds the completeness marker, without which agents reject the state in etcd, for
// tests that write keys by hand. Tests of the completeness marker itself do not use it.
package marked

import (
	"context"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
)

// Cluster is the cluster of all markers of this package.
const Cluster = "test"

// Marker returns the entry of a marker that promises no object, and accepts that there is none.
func Marker(prefix string, generation int64) model.Entry {
	value, err := model.EncodeMarker(&model.Marker{Cluster: Cluster, Generation: generation, Accepted: generation, Writer: "a test"})
	if err != nil {
		panic(err) // of the test: a marker is always JSON
	}
	return model.Entry{Key: model.MarkerKey(prefix), Value: value}
}

// Store returns a store whose lists of whole states have a marker that is newer than all before.
func Store(s follow.Store) follow.Store { return store{s} }

type store struct{ follow.Store }

// List implements follow.Store.
func (s store) List(ctx context.Context, prefix string) ([]model.Entry, int64, error) {
	entries, revision, err := s.Store.List(ctx, prefix)
	if root := strings.TrimSuffix(prefix, "/k8s/"); err == nil && root != prefix {
		entries = append(entries, Marker(root, time.Now().UnixNano()))
	}
	return entries, revision, err
}
