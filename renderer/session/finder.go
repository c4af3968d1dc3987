package session

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// finder finds the open connections of pods that policy no longer permits.
type finder struct {
	link   *link
	mirror *mirror
	pods   *pods
	only   map[netip.Addr]bool // of these addresses; nil means all
}

// denied returns the open connections of pods that their rules would deny now. peers are the server
// sessions that must end together with denied cut-through connections.
func (f finder) denied(ctx context.Context) (out, peers []connection, err error) {
	threads, err := f.link.threads(ctx)
	if err != nil || threads == 0 {
		return nil, nil, err
	}
	all, err := f.link.connections(ctx, threads, netip.IPv4Unspecified())
	if err != nil {
		return nil, nil, err
	}
	cut, wildcard := divideCut(all)
	if out, peers, err = f.deniedCut(ctx, threads, cut); err != nil {
		return nil, nil, err
	}
	for _, pod := range f.pods.onStack() {
		for _, own := range f.pods.own[pod] {
			if f.only != nil && !f.only[own] {
				continue
			}
			all, err := f.link.connections(ctx, threads, own)
			if err != nil {
				return nil, nil, err
			}
			_, all = divideCut(all)
			for _, c := range all {
				if !c.listens && f.denies(f.pods.namespaces[pod], c, slices.ContainsFunc(slices.Concat(all, wildcard), c.isOf)) {
					out = append(out, c)
				}
			}
		}
	}
	return out, peers, nil
}

// denies reports whether the rules of all namespaces of a pod deny the attempt that opened a
// connection: an attempt to reach the pod if the pod accepted it, otherwise one by an application
// of the pod.
func (f finder) denies(namespaces []uint32, c connection, accepted bool) bool {
	family := familyOf(c.lcl.Addr())
	for _, namespace := range namespaces {
		s, port := section{namespace, true, c.transport, everything(family), family}, c.rmt.Port()
		if accepted {
			s = section{f.mirror.tableOf(namespace, family), false, c.transport, netip.PrefixFrom(c.lcl.Addr(), c.lcl.Addr().BitLen()), family}
			port = c.lcl.Port()
		}
		if f.mirror.permits(s, c.rmt.Addr(), port) {
			return false
		}
	}
	return true
}

// target is the destination of a cut-through connection.
type target struct {
	transport api.Protocol
	address   netip.AddrPort
}

// deniedCut returns the sessions of clients that rules deny, and the sessions of servers whose
// clients are all denied. It skips a client whose server has closed: no data passes, and VPP shows
// the session until the client closes, too.
func (f finder) deniedCut(ctx context.Context, threads int, cut []connection) (denied, servers []connection, err error) {
	if len(cut) == 0 {
		return nil, nil, nil
	}
	owners, err := f.link.clients(ctx)
	if err != nil {
		return nil, nil, err
	}
	permitted, forbidden := map[target]bool{}, map[target][]connection{}
	for _, c := range cut {
		to := target{c.transport, c.rmt}
		if f.deniesClient(c, owners) {
			forbidden[to] = append(forbidden[to], c)
		} else {
			permitted[to] = true
		}
	}
	for to, clients := range forbidden {
		all, err := f.link.connections(ctx, threads, to.address.Addr())
		if err != nil {
			return nil, nil, err
		}
		here, _ := divideCut(all)
		here = slices.DeleteFunc(here, func(c connection) bool { return c.transport != to.transport || c.lcl != to.address })
		if len(here) > 0 {
			denied = append(denied, clients...)
		}
		if !permitted[to] {
			servers = append(servers, here...)
		}
	}
	return denied, servers, nil
}

// deniesClient reports whether the rules of the client's namespace deny what it has opened. If the
// namespace is unknown, it reports whether those of all pods do.
func (f finder) deniesClient(c connection, owners map[sessionID]uint32) bool {
	spaces := f.pods.spaces()
	if owner, known := owners[sessionID{c.thread, c.index}]; known {
		spaces = []uint32{owner}
	}
	family := familyOf(c.rmt.Addr())
	for _, namespace := range spaces {
		if f.mirror.permits(section{namespace, true, c.transport, everything(family), family}, c.rmt.Addr(), c.rmt.Port()) {
			return false
		}
	}
	return len(spaces) > 0
}
