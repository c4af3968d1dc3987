package cache

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// node is a node of the cluster.
type node struct {
	*intent.Node
	epoch uint32
}

// nodes are the nodes of the cluster, by name.
type nodes map[string]*node

func (x nodes) apply(id model.ID, m *model.Node, s *scratch, w update) []api.Problem {
	if m == nil {
		x.set(id.Name, nil, w)
		return nil
	}
	addrs, bad := parseAddrs(nil, m.GetAddresses())
	x.set(id.Name, &intent.Node{
		Name: id.Name, Labels: slices.Clone(s.readLabels(m.GetLabels())), Addresses: slices.Clip(addrs),
	}, w)
	if len(bad) == 0 {
		return nil
	}
	return []api.Problem{{Object: id.String(), Field: "status.addresses", Reason: fmt.Sprintf("%s: not addresses, left out", quoted(bad))}}
}

// set updates a node; nil makes it unknown.
func (x nodes) set(name string, now *intent.Node, w update) {
	old := x[name]
	switch {
	case now == nil && old == nil:
		return
	case now == nil:
		delete(x, name)
		w.NodeChanged(old.Node, nil)
	case old == nil:
		x[name] = &node{now, w.epoch}
		w.NodeChanged(nil, now)
	default:
		old.epoch = w.epoch
		if equalNodes(old.Node, now) {
			return
		}
		was := old.Node
		old.Node = now
		w.NodeChanged(was, now)
	}
}

func equalNodes(a, b *intent.Node) bool {
	return slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Addresses, b.Addresses)
}

func (x nodes) addresses(name string) []netip.Addr {
	if n := x[name]; n != nil {
		return n.Addresses
	}
	return nil
}
