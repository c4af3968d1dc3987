package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/backends"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/acl"
)

// backendList is the backends that enforce policy. each, able and find return those of them with an
// optional interface.
type backendList []node.Backend

// each calls f for every backend that is a T.
func each[T any](all backendList, f func(T)) {
	for _, b := range all {
		if able, ok := b.(T); ok {
			f(able)
		}
	}
}

// able returns the backends that are a T.
func able[T any](all backendList) (out []T) {
	each(all, func(b T) { out = append(out, b) })
	return out
}

// find returns the first backend that is a T, else the zero value.
func find[T any](all backendList) (first T) {
	for _, b := range able[T](all) {
		return b
	}
	return first
}

// start starts the backends that must run before the node.
func (all backendList) start() (err error) {
	each(all, func(s backends.Starter) { err = errors.Join(err, s.Start()) })
	return err
}

// endpoints returns the interfaces of pods.
func (all backendList) endpoints() (out []wire.Endpoint) {
	each(all, func(l interface{ List() []wire.Endpoint }) { out = append(out, l.List()...) })
	return out
}

// blocked returns the interfaces that a renderer's dataplane blocks, where the backend knows them.
func (all backendList) blocked(renderer string) (names []string, known bool) {
	each(all, func(b interface {
		node.Backend
		Blocked() []string
	}) {
		if b.Renderer().Name() == renderer {
			names, known = b.Blocked(), true
		}
	})
	return names, known
}

// collectors returns the metrics of the dataplanes.
func (all backendList) collectors() (out []prometheus.Collector) {
	each(all, func(c interface{ Collectors() []prometheus.Collector }) { out = append(out, c.Collectors()...) })
	return out
}

// verdicts returns the dataplanes that report verdicts of packets.
func (all backendList) verdicts() (out []verdicts.Source) {
	each(all, func(s verdicts.Source) {
		if o, ok := s.(interface{ Mute() bool }); !ok || !o.Mute() {
			out = append(out, s)
		}
	})
	return out
}

// addresses returns the addresses of the node that backends have found.
func (all backendList) addresses() (out []netip.Addr) {
	each(all, func(n interface{ Addresses() []netip.Addr }) { out = append(out, n.Addresses()...) })
	return out
}

// uncovered returns the interfaces of pods to which no policy applies.
func (all backendList) uncovered() (names []string) {
	each(all, func(u interface{ Uncovered() []string }) { names = append(names, u.Uncovered()...) })
	return names
}

// problems returns what backends cannot read, or cannot enforce.
func (all backendList) problems() (out []api.Problem) {
	each(all, func(p interface{ Problems() []api.Problem }) { out = append(out, p.Problems()...) })
	return out
}

// registered returns a function for the addresses with which the CNI plugin made pods' interfaces,
// or nil if no backend knows them.
func (all backendList) registered() func() map[api.PodID][]netip.Addr {
	if find[backends.Identifier](all) == nil {
		return nil
	}
	return func() map[api.PodID][]netip.Addr {
		out := map[api.PodID][]netip.Addr{}
		each(all, func(i backends.Identifier) { maps.Copy(out, i.Registered()) })
		return out
	}
}

// source returns a source that delivers nothing before the backends know the interfaces of pods. It
// passes the identities of the node's pods to the backends before the policy plugin gets them. From
// then on interfaces of earlier pods with the same names are blocked.
func (all backendList) source(s policy.Source, node string) policy.Source {
	return identified{s, all, node}
}

type identified struct {
	policy.Source
	backends backendList
	node     string
}

// Next implements policy.Source.
func (s identified) Next(ctx context.Context) (model.Changes, error) {
	for _, b := range s.backends {
		a, ok := b.(backends.Awaiting)
		if !ok {
			continue
		}
		select {
		case <-a.Ready():
		case <-ctx.Done():
			return model.Changes{}, ctx.Err()
		}
	}
	changes, err := s.Source.Next(ctx)
	if err != nil {
		return changes, err
	}
	each(s.backends, func(o interface{ Saw(changes model.Changes) }) { o.Saw(changes) })
	if lives := s.identities(changes); len(lives) > 0 || changes.Resync {
		each(s.backends, func(i backends.Identifier) { i.Identify(lives, changes.Resync) })
	}
	return changes, nil
}

// identities returns the identities of the node's pods in changes, nil for one that is gone or on
// another node.
func (s identified) identities(changes model.Changes) map[api.PodID]*acl.PodIdentity {
	out := map[api.PodID]*acl.PodIdentity{}
	for _, d := range changes.Deltas {
		if d.ID.Kind != model.KindPod {
			continue
		}
		p, ok := d.Value.(*model.Pod)
		id := api.PodID{Namespace: d.ID.Namespace, Name: d.ID.Name}
		switch {
		case ok && (s.node == "" || p.GetNodeName() == s.node):
			out[id] = identityOf(p)
		case !changes.Resync:
			out[id] = nil
		}
	}
	return out
}

// identityOf returns the identity of a pod. Invalid addresses are ignored.
func identityOf(p *model.Pod) *acl.PodIdentity {
	life := &acl.PodIdentity{UID: p.GetUid()}
	for _, text := range p.GetIps() {
		if ip, err := netip.ParseAddr(text); err == nil {
			life.IPs = append(life.IPs, ip.Unmap())
		}
	}
	return life
}
