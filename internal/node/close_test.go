package node

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// stuckPlane answers no question about what is attached until it is released.
type stuckPlane struct {
	xdp.Dataplane
	release chan struct{}
}

func (p stuckPlane) Attached() ([]uint32, error) {
	<-p.release
	return p.Dataplane.Attached()
}

// TestCloseDoesNotWaitForStuckCommit closes two nodes whose commits are stuck below the
// renderer, which keeps its lock meanwhile.
func TestCloseDoesNotWaitForStuckCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := NewXDPFabric(nil, true)
		for _, name := range []string{"node-1", "node-2"} {
			heap := NewHeap()
			heap.Options.Dataplane = stuckPlane{heap.Options.Dataplane, release}
			n, err := New(Config{Name: name, Backends: []Backend{heap}})
			if err != nil {
				t.Fatal(err)
			}
			f.nodes[name] = n
		}
		var applying sync.WaitGroup
		for _, n := range f.nodes {
			if err := n.Start(); err != nil {
				t.Fatal(err)
			}
			applying.Go(func() {
				changes := model.Changes{Resync: true, Revision: 1, Deltas: puts(t, running("web", n.name, "web", "10.0.1.1"))}
				_ = n.Apply(t.Context(), changes) // the Apply may end well after all
			})
		}
		synctest.Wait() // in the commits
		begin := time.Now()
		if err := f.Close(); !errors.Is(err, policy.ErrStuck) || time.Since(begin) >= 5*time.Second {
			t.Errorf("%v after %s, want %v in less than 5s", err, time.Since(begin), policy.ErrStuck)
		}
		close(release)
		applying.Wait()
	})
}
