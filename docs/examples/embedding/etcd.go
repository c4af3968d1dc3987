package embedding

import (
	"context"
	"log/slog"

	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Follow has the agent enforce what sluice-ksr reflects into etcd. It is called before Start, and
// Tell is not called then. Nothing is waited for: etcd may come later.
func (a *Agent) Follow(etcd kvstore.Config, log *slog.Logger) error {
	store, err := kvstore.Open(etcd, log)
	if err != nil {
		return err
	}
	s := &source{store: store, watcher: datasync.New(datasync.Config{Store: store, Log: log})}
	a.policy.Source = s.watcher
	a.plugins = append([]Plugin{s}, a.plugins...)
	return nil
}

// source is the plugin that reads etcd.
type source struct {
	store   *kvstore.Client
	watcher *datasync.Watcher
	stop    context.CancelFunc
	ended   chan struct{}
}

func (*source) String() string { return "source" }

func (*source) Init() error { return nil }

// AfterInit starts to read.
func (s *source) AfterInit() error {
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.ended = stop, make(chan struct{})
	go func() {
		defer close(s.ended)
		_ = s.watcher.Run(ctx) // it ends with the context only
	}()
	return nil
}

// Close ends it. The policy plugin was closed before.
func (s *source) Close() error {
	if s.stop != nil {
		s.stop()
		<-s.ended
	}
	return s.store.Close()
}
