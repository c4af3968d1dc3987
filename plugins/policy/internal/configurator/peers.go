package configurator

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// peer is the number of a peer in one generator.
type peer int32

// anyPeer is the number of the peer that is any.
const anyPeer peer = 0

// peers numbers the peers that rules name: many rules name the same ones.
type peers struct {
	nets    []api.Net
	numbers map[api.Net]peer
	ofSets  map[setsID][]peer
	common  map[[2]peer][]peer // intersections
	seen    []int              // by peer: see repeated
	times   int
}

// setsID identifies a slice of sets that is not modified.
type setsID struct {
	first *api.SetID
	len   int
}

// newPeers returns a table for about n peers.
func newPeers(n int) peers {
	x := peers{nets: make([]api.Net, 0, n), numbers: make(map[api.Net]peer, n), ofSets: map[setsID][]peer{}, common: map[[2]peer][]peer{}}
	x.numberOf(api.Net{}) // anyPeer
	return x
}

// numberOf returns the number of a peer.
func (x *peers) numberOf(n api.Net) peer {
	p, known := x.numbers[n]
	if !known {
		p = peer(len(x.nets))
		x.nets = append(x.nets, n)
		x.numbers[n] = p
	}
	return p
}

// sets returns the numbers of some sets, which are shared.
func (x *peers) sets(sets []api.SetID) []peer {
	id := setsID{&sets[0], len(sets)}
	if known, ok := x.ofSets[id]; ok {
		return known
	}
	out := make([]peer, len(sets))
	for i, s := range sets {
		out[i] = x.numberOf(api.SetNet(s))
	}
	if !slices.IsSortedFunc(out, x.compare) {
		slices.SortFunc(out, x.compare)
	}
	out = slices.Compact(out)
	x.ofSets[id] = out
	return out
}

// compare orders peers like api.Net.Compare.
func (x *peers) compare(a, b peer) int { return x.nets[a].Compare(x.nets[b]) }
