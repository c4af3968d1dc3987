package bench

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// BenchmarkPropagation measures one object from the call that writes it into etcd, embedded in this
// process, until every renderer enforces it. The time of the write alone is reported, too.
func BenchmarkPropagation(b *testing.B) {
	s := shapes[1]
	for _, t := range s.toggles() {
		if t.name != "remote-pod-relevant" && t.name != "local-pod" && t.name != "policy-add-delete" {
			continue
		}
		for _, k := range subjects {
			b.Run(s.String()+"/"+t.name+"/"+string(k), func(b *testing.B) { s.propagate(b, t, k) })
		}
	}
}

// write writes changes as ksr does, canonically.
func write(b *testing.B, c *kvstore.Client, changes model.Changes) {
	var puts []model.Entry
	var deletes []string
	for _, d := range changes.Deltas {
		key := model.Key(model.DefaultPrefix, d.ID)
		if d.Value == nil {
			deletes = append(deletes, key)
			continue
		}
		value, err := model.Encode(d.Value)
		if err != nil {
			b.Fatal(err)
		}
		puts = append(puts, model.Entry{Key: key, Value: value})
	}
	if err := c.Write(b.Context(), puts, deletes); err != nil {
		b.Fatal(err)
	}
}

func revision(b *testing.B, c *kvstore.Client) int64 {
	st, err := c.Status(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return st.Revision
}

func (s shape) propagate(b *testing.B, t toggle, k kind) {
	log := slog.New(slog.DiscardHandler)
	server, err := embedded.Start(b.Context(), embedded.Config{ClientURL: "http://127.0.0.1:0", Log: log})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := server.Close(); err != nil {
			b.Error(err)
		}
	}()
	client, err := kvstore.Dial(b.Context(), kvstore.Config{Endpoints: server.Endpoints()}, log)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			b.Error(err)
		}
	}()
	write(b, client, s.world().resync(b))

	source := datasync.New(datasync.Config{Store: marked.Store(client), Log: log})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	}()
	x := startSubject(b, k, node0, source)
	defer x.close()
	if err := x.plugin.WaitIdle(b.Context(), revision(b, client)); err != nil {
		b.Fatal(err)
	}
	x.measurePropagation(b, client, [2]model.Changes{t.do.changes(b), t.undo.changes(b)})
	w := s.world()
	if _, there := w[t.do.changes(b).Deltas[0].ID]; there {
		b.Fatal("the event is not one of an object that comes and goes")
	}
	x.check(b, w, t.do.put...)
}

// measurePropagation lets an object come and go; in the end it is gone.
func (s *subject) measurePropagation(b *testing.B, client *kvstore.Client, in [2]model.Changes) {
	at := revision(b, client)
	var writing []time.Duration
	step := func(c model.Changes) {
		start := time.Now()
		write(b, client, c)
		writing = append(writing, time.Since(start))
		at++ // every write is one transaction
		if err := s.plugin.WaitIdle(b.Context(), at); err != nil {
			b.Fatal(err)
		}
	}
	m := newMeter(b)
	m.reset()
	i := 0
	for b.Loop() {
		m.event(func() { step(in[i%2]) })
		i++
	}
	m.stop()
	m.report(b.N)
	reportDistribution(b, "write-", writing)
	if i%2 == 1 {
		step(in[1])
	}
	if now := revision(b, client); now != at {
		b.Errorf("the store is at revision %d, the writes led to %d", now, at)
	}
}
