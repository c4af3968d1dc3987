package preview

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
)

// Judge returns a function that says of a flow what the specification says. Unlike the
// specification it is fast when it is asked about many flows of many pods: see Pairs. One goroutine
// may use it.
func Judge(m explain.Manifests) func(api.Flow) bool {
	v := newVocabulary()
	s := newState(m, v)
	r := newReach(newComparison(s, s, v), "")
	j := flowJudge{reach: r, state: s, classOf: map[api.PodID]int{}, atomOf: map[atomKey]int{}}
	for i, x := range r.classes {
		for _, id := range x.members {
			j.classOf[id] = i
		}
	}
	return j.allowed
}

type atomKey struct {
	protocol api.Protocol
	port     uint16
}

// flowJudge decides about flows of one state.
type flowJudge struct {
	*reach
	*state
	classOf map[api.PodID]int
	atomOf  map[atomKey]int
}

// allowed asks the specification about flows that are odd.
func (j *flowJudge) allowed(f api.Flow) bool {
	src, isPlain := j.podAt(f.Src)
	dst, isAlso := j.podAt(f.Dst)
	if !isPlain || !isAlso || src == dst || f.Src.Is4() != f.Dst.Is4() {
		return j.Allowed(f)
	}
	i, known := j.atomOf[atomKey{f.Protocol, f.DstPort}]
	if !known {
		i = slices.IndexFunc(j.atoms, func(a atom) bool { return a.holds(f) })
		j.atomOf[atomKey{f.Protocol, f.DstPort}] = i
	}
	if i < 0 {
		return j.Allowed(f)
	}
	all, e := newPortSet(len(j.atoms)), ends{f.Src, f.Dst}
	all.add(i)
	if src != nil {
		j.limit(all, j.rowsOf(rowsKey{j.classOf[explain.PodID(src.Pod)], 0, api.Egress, f.Src.Is4()}), src, dst, -1, e)
	}
	if dst != nil && !all.isEmpty() {
		j.limit(all, j.rowsOf(rowsKey{j.classOf[explain.PodID(dst.Pod)], 0, api.Ingress, f.Src.Is4()}), dst, src, -1, e)
	}
	return !all.isEmpty()
}

// podAt returns the pod at an address, nil for none. It is false where the address is several pods'
// or a node's.
func (j *flowJudge) podAt(a netip.Addr) (*pod, bool) {
	if !a.IsValid() {
		return nil, false
	}
	if _, isNode := slices.BinarySearchFunc(j.comparison.nodes, a, netip.Addr.Compare); isNode {
		return nil, false
	}
	switch at := j.PodsAt(a); len(at) {
	case 0:
		return nil, !j.words.tiers
	case 1:
		p := j.pods[at[0]]
		return p, p != nil && !j.isOdd(p)
	}
	return nil, false
}
