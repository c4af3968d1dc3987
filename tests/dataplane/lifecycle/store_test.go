package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// TestLifeWithoutStore restarts the agent against stores that do not hold what holds, while pods
// talk. A pod that is made meanwhile is blocked until the store is right again.
func TestLifeWithoutStore(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		etcd func(s *street) *string
		why  string
	}{
		{"etcd empty", nil, func(s *street) *string { e := startEtcd(s.T); return &e }, "nothing is below /sluice/k8s/"},
		{"wrong prefix", []string{"--etcd-prefix", "/sliuce"}, func(s *street) *string { return &s.etcd }, "nothing is below /sliuce/k8s/"},
		{"rolled back", nil, func(s *street) *string { return s.older }, "etcd was set back"},
		{"etcd away", nil, func(*street) *string { return nil }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStreet(t, `"timeout": "300ms"`, "open-1", "shut-1")
			s.remove(shutPolicy)
			s.older = s.copyStore() // in which nothing isolates
			s.knows("shut-new", "open-new")
			s.up()
			s.listens()
			s.Must(errors.Join(s.born("shut-1"), s.born("open-1")))
			s.open("before", "open-1")
			s.agent.Signal(syscall.SIGTERM) // it keeps what its store has then, and every ten seconds
			<-s.agent.Ended
			s.target.Store(c.etcd(s))
			s.start(c.args...)
			if c.why != "" {
				s.doubts(c.why)
			}
			s.Must(errors.Join(s.born("shut-new"), s.born("open-new")))
			s.open("with "+c.name, "open-1")
			s.shut("with " + c.name)
			s.agent.Kill()
			s.target.Store(&s.etcd)
			s.up()
			s.open("with the right store", "open-1", "open-new")
			s.shut("with the right store")
		})
	}
}

// copyStore copies what etcd holds now into another one.
func (n *node) copyStore() *string {
	n.T.Helper()
	to := startEtcd(n.T)
	ctx := context.Background()
	dial := func(at string) *kvstore.Client {
		c, err := kvstore.Dial(ctx, kvstore.Config{Endpoints: []string{at}}, slog.New(slog.DiscardHandler))
		n.Must(err)
		return c
	}
	a, b := dial(n.etcd), dial(to)
	entries, _, err := a.List(ctx, model.DefaultPrefix+"/")
	n.Must(errors.Join(err, b.Write(ctx, entries, nil), a.Close(), b.Close()))
	return &to
}
