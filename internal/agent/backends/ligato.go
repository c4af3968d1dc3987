package backends

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/plugins/follow"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/renderer"
	ligatorenderer "github.com/sluice-net/sluice/renderer/ligato"
)

// ligato is a vpp-agent, for which rules are published.
type ligato struct {
	options  ligatorenderer.Options
	config   config.Ligato
	store    *kvstore.Client
	log      *slog.Logger
	plugs    *bindings.Watcher // of the interfaces of pods
	renderer *ligatorenderer.Renderer
	prompt   func()
}

func newLigato(d Deps) (node.Backend, error) {
	infra, err := d.Config.Enforce.Exempt()
	if err != nil {
		return nil, err
	}
	l := &ligato{config: d.Config.Ligato, store: d.Store, log: d.Log}
	l.plugs = watcher(d, bindings.Config{OnChange: func() { l.prompt() }}, ".interfaces")
	l.options = ligatorenderer.Options{
		Log: d.Log.With("plugin", "ligato"), Store: d.Store, Label: d.Config.Ligato.Label, Prefix: d.Config.Ligato.Prefix,
		Uplinks: d.Config.VPP.Uplinks, Interfaces: l.interfacesOf, Infra: infra,
	}
	return l, nil
}

// Open implements node.Backend.
func (l *ligato) Open(h node.Host) (err error) {
	l.prompt = h.OnChange
	l.renderer, err = ligatorenderer.New(l.options)
	return err
}

// Renderer implements node.Backend.
func (l *ligato) Renderer() renderer.Renderer { return l.renderer }

// Close implements node.Backend. What is published stays.
func (*ligato) Close() error { return nil }

// Ready implements Awaiting.
func (l *ligato) Ready() <-chan struct{} { return l.plugs.Ready() }

// Run implements Runner.
func (l *ligato) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.plugs.Run(ctx) })
	g.Go(func() error { return l.followPublished(ctx) })
	return g.Wait()
}

// interfacesOf returns the names of a pod's interfaces: those that keys in etcd give it,
// or the one that the template does.
func (l *ligato) interfacesOf(pod api.PodID) []string {
	if names := l.plugs.InterfacesOf(pod); len(names) > 0 || l.config.Interface == "" {
		return names
	}
	return []string{l.config.InterfaceOf(pod)}
}

// followPublished has the renderer look again whenever another process changes what it has
// published, or the store may have lost it, until the context ends.
func (l *ligato) followPublished(ctx context.Context) error {
	return follow.Run(ctx, follow.Config{
		Store: headOnly{l.store}, Prefix: l.renderer.Prefix(), What: "published keys", Log: l.log, Grace: -1,
		Snapshot: func(follow.Snapshot) {
			l.renderer.Invalidate()
			l.prompt()
		},
		Deliver: func(entries []model.Entry, _ int64) {
			if l.renderer.Seen(entries) {
				l.prompt()
			}
		},
	})
}

// headOnly is a store that is followed from now on: what it has, the renderer reads.
type headOnly struct{ *kvstore.Client }

// List implements follow.Store.
func (s headOnly) List(ctx context.Context, _ string) ([]model.Entry, int64, error) {
	status, err := s.Status(ctx)
	return nil, status.Revision, err
}
