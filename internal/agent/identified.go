package agent

import (
	"context"
	"maps"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/acl"
)

// identified is a source that says by which UIDs and addresses the state knows the pods of the node,
// before policy knows them so. Interfaces of other lives of these pods are blocked from then on.
type identified struct {
	policy.Source
	agent *Agent
}

// identify has a node know whose lives its interfaces were made for, and with which addresses.
func (a *Agent) identify(cfg *node.Config) {
	if cfg.VPPSocket != "" && cfg.Ligato == nil && (cfg.XDP == nil || !cfg.XDP.Only) {
		a.lives = &acl.Lives{}
		cfg.Refuses = a.lives.Refuses
	}
	if a.endpoints == nil && a.lives == nil {
		return
	}
	cfg.Source, cfg.Registered = identified{cfg.Source, a}, a.registered
}

// registered returns the addresses with which interfaces of pods were made, in the kernel and in VPP.
func (a *Agent) registered() map[api.PodID][]netip.Addr {
	out := map[api.PodID][]netip.Addr{}
	if a.endpoints != nil {
		out = a.endpoints.Registered()
	}
	if a.lives != nil && a.node.ACL != nil {
		maps.Copy(out, a.lives.Registered(a.node.ACL.Made()))
	}
	return out
}

// Next implements policy.Source.
func (s identified) Next(ctx context.Context) (model.Changes, error) {
	changes, err := s.Source.Next(ctx)
	if err != nil {
		return changes, err
	}
	if lives := s.lives(changes); len(lives) > 0 || changes.Resync {
		s.agent.identified(lives, changes.Resync)
	}
	return changes, nil
}

// lives returns what changes say of pods of the node, nil for one that is gone, or elsewhere.
func (s identified) lives(changes model.Changes) map[api.PodID]*acl.Life {
	out := map[api.PodID]*acl.Life{}
	for _, d := range changes.Deltas {
		if d.ID.Kind != model.KindPod {
			continue
		}
		p, ok := d.Value.(*model.Pod)
		id := api.PodID{Namespace: d.ID.Namespace, Name: d.ID.Name}
		switch node := s.agent.cfg.Node; {
		case ok && (node == "" || p.GetNodeName() == node):
			out[id] = lifeOf(p)
		case !changes.Resync:
			out[id] = nil
		}
	}
	return out
}

// lifeOf returns by what a pod is known. What is no address says nothing.
func lifeOf(p *model.Pod) *acl.Life {
	life := &acl.Life{UID: p.GetUid()}
	for _, text := range p.GetIps() {
		if ip, err := netip.ParseAddr(text); err == nil {
			life.IPs = append(life.IPs, ip.Unmap())
		}
	}
	return life
}

// identified tells who looks after interfaces.
func (a *Agent) identified(lives map[api.PodID]*acl.Life, all bool) {
	if a.endpoints != nil {
		uids := make(map[api.PodID]string, len(lives))
		for id, life := range lives {
			if uids[id] = ""; life != nil {
				uids[id] = life.UID
			}
		}
		a.endpoints.Identify(uids, all)
	}
	if a.lives != nil && a.lives.Identify(lives, all) {
		a.node.ACL.InterfacesChanged()
	}
}
