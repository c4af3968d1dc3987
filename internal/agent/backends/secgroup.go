package backends

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/renderer/secgroup/neutron"
)

// secgroups is the Neutron of a cluster.
type secgroups struct {
	options  secgroup.Options
	refresh  time.Duration
	renderer *secgroup.Renderer
	prompt   func()
	calls    *prometheus.HistogramVec
	where    whereabouts
}

// Secgroups returns the Maker of the one backend of sluice-neutron. It changes Neutron only while
// leads returns no error.
func Secgroups(leads func(context.Context) error) Maker {
	return func(d Deps) ([]node.Backend, error) {
		s, err := newSecgroups(d, leads)
		return []node.Backend{s}, err
	}
}

func newSecgroups(d Deps, leads func(context.Context) error) (node.Backend, error) {
	infra, err := d.Config.Enforce.Exempt()
	if err != nil {
		return nil, err
	}
	n := d.Config.Neutron
	s := &secgroups{refresh: n.Refresh, where: newWhereabouts(), calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sluice_neutron_call_seconds", Help: "Duration of calls to Neutron, by method, object and result.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
	}, []string{"method", "object", "result"})}
	connect := neutron.Cloud(n.CloudsFile, n.Cloud)
	if n.URL != "" {
		connect = neutron.NoAuth(n.URL, http.DefaultTransport)
	}
	client := neutron.New(connect, neutron.Options{Networks: n.Networks, Timeout: n.Timeout, Observe: s.observe})
	s.options = secgroup.Options{
		Log: d.Log.With("plugin", "secgroup"), API: fenced{client, leads}, Cluster: n.Mark, DefaultGroups: n.DefaultGroups,
		AddressGroups: n.AddressGroups, MaxRules: n.MaxRules, Identify: identify(n.PortsBy), NodeOf: s.where.addressesOf, Infra: infra,
	}
	_, err = secgroup.New(s.options) // settings are refused before anything starts
	return s, err
}

// fenced is a Neutron that only the leader changes.
type fenced struct {
	secgroup.API
	leads func(context.Context) error
}

// Apply implements secgroup.API.
func (f fenced) Apply(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
	if err := f.leads(ctx); err != nil {
		return secgroup.Result{}, err
	}
	return f.API.Apply(ctx, op)
}

// observe counts a call.
func (s *secgroups) observe(method, object string, took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	s.calls.WithLabelValues(strings.ToLower(method), object, result).Observe(took.Seconds())
}

// Collectors returns the metrics of the calls.
func (s *secgroups) Collectors() []prometheus.Collector { return []prometheus.Collector{s.calls} }

// identify returns the option of the renderer.
func identify(by string) func(secgroup.Port) (api.PodID, bool) {
	read := func(text string) (api.PodID, bool) {
		pod, err := api.ParsePodID(text)
		return pod, err == nil
	}
	switch by {
	case config.PortsByName:
		return func(p secgroup.Port) (api.PodID, bool) { return read(p.Name) }
	case config.PortsByDevice:
		return func(p secgroup.Port) (api.PodID, bool) { return read(p.Device) }
	case config.PortsByTag:
		return func(p secgroup.Port) (api.PodID, bool) {
			for _, t := range p.Tags {
				if name, ok := strings.CutPrefix(t, "pod="); ok {
					return read(name)
				}
			}
			return api.PodID{}, false
		}
	}
	return nil
}

// Open implements node.Backend.
func (s *secgroups) Open(h node.Host) (err error) {
	s.prompt, s.options.OnChange = h.OnChange, h.OnChange
	s.renderer, err = secgroup.New(s.options)
	return err
}

// Renderer implements node.Backend.
func (s *secgroups) Renderer() renderer.Renderer { return s.renderer }

// Close implements node.Backend. Groups stay as they are.
func (*secgroups) Close() error { return nil }

// Run implements Runner: it has the renderer look for what others have changed.
func (s *secgroups) Run(ctx context.Context) error {
	tick := time.NewTicker(s.refresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.renderer.Refresh()
			s.prompt()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Saw learns on which nodes pods are.
func (s *secgroups) Saw(changes model.Changes) { s.where.saw(changes) }

// whereabouts knows the addresses of the nodes of pods. It belongs to the goroutine that commits,
// which is also the one that reads changes.
type whereabouts struct {
	pods  map[api.PodID]*model.Pod
	nodes map[string]*model.Node
}

func newWhereabouts() whereabouts {
	return whereabouts{map[api.PodID]*model.Pod{}, map[string]*model.Node{}}
}

func (w whereabouts) saw(changes model.Changes) {
	if changes.Resync {
		clear(w.pods)
		clear(w.nodes)
	}
	for _, d := range changes.Deltas {
		switch d.ID.Kind {
		case model.KindPod:
			id := api.PodID{Namespace: d.ID.Namespace, Name: d.ID.Name}
			if delete(w.pods, id); d.Value != nil {
				w.pods[id], _ = d.Value.(*model.Pod)
			}
		case model.KindNode:
			if delete(w.nodes, d.ID.Name); d.Value != nil {
				w.nodes[d.ID.Name], _ = d.Value.(*model.Node)
			}
		default:
		}
	}
}

// addressesOf returns the addresses of the node of a pod, sorted.
func (w whereabouts) addressesOf(pod api.PodID) []netip.Addr {
	p := w.pods[pod]
	found := map[netip.Addr]bool{}
	for _, text := range slices.Concat(p.GetNodeIps(), w.nodes[p.GetNodeName()].GetAddresses()) {
		if a, err := netip.ParseAddr(text); err == nil {
			found[a.Unmap()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare)
}
