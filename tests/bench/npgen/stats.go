package main

import (
	"fmt"
	"hash/fnv"
)

// stats is the ground truth of a workload, of the whole cluster at its start: what any
// correct engine must come to, counted by the simplest means. The names and the order
// of the fields are those of stats.json.
type stats struct {
	Workload string
	Size     string
	Seed     uint64

	ObjectCounts
	RuleCounts
	SelectorCounts

	MinimalPrefixesV4 int // prefixes that make up the blocks without their exceptions
	MinimalPrefixesV6 int

	// Sums of hashes, in any order: of the pairs in AppliedPairs and PeerPairsUnique.
	AppliedDigest string
	PeerDigest    string

	Events      int
	EventsByTag map[string]int
}

// ObjectCounts is how many objects there are. The parts of stats have names that encoding/json and
// go-cmp see.
type ObjectCounts struct {
	Namespaces    int
	Pods          int
	Nodes         int
	Policies      int
	AdminPolicies int // counted only: no other figure has anything of them
}

// RuleCounts is what the policies consist of.
type RuleCounts struct {
	Rules    int // of both directions
	PeersSel int // peers with selectors
	IPBlocks int
	Excepts  int
}

// SelectorCounts is what the selectors of the policies mean.
type SelectorCounts struct {
	UniqueAppliedSel int // pairs of a namespace and a selector of pods that policies apply to
	UniquePeerSel    int // peers with selectors that do not mean the same
	UniqueLabelSets  int // pairs of a namespace and a set of labels that pods have

	AppliedPairs      int // pairs of a policy and a pod that it applies to
	PeerPairsUnique   int // pairs of a peer of UniquePeerSel and a pod in it
	PeerPairsExpanded int // the same for every peer of PeersSel
	MaxPeerSet        int // pods in the largest peer
}

// census counts a cluster.
type census struct {
	cluster       *cluster
	stats         stats
	podsOf        map[string][]*pod // by namespace
	applied       map[string]bool   // canonical selectors
	peers         map[string]int    // number of pods by canonical peer
	appliedDigest uint64
	peerDigest    uint64
}

// takeCensus returns all stats of a cluster, but for the names of the workload and the
// events.
func takeCensus(c *cluster) stats {
	s := census{cluster: c, podsOf: map[string][]*pod{}, applied: map[string]bool{}, peers: map[string]int{}}
	s.stats.ObjectCounts = ObjectCounts{
		Namespaces: len(c.namespaces), Pods: len(c.pods), Nodes: c.size.nodes,
		Policies: len(c.policies), AdminPolicies: len(c.admin),
	}
	s.countPods()
	for _, np := range c.policies {
		s.countPolicy(np)
	}
	s.stats.UniqueAppliedSel, s.stats.UniquePeerSel = len(s.applied), len(s.peers)
	s.stats.AppliedDigest = fmt.Sprintf("%016x", s.appliedDigest)
	s.stats.PeerDigest = fmt.Sprintf("%016x", s.peerDigest)
	return s.stats
}

// countPods must come before the policies.
func (s *census) countPods() {
	sets := map[string]bool{}
	for _, p := range s.cluster.pods {
		ns := p.Meta.Namespace
		s.podsOf[ns] = append(s.podsOf[ns], p)
		set := selector{MatchLabels: p.Meta.Labels}
		sets[ns+"|"+set.canonical()] = true
	}
	s.stats.UniqueLabelSets = len(sets)
}

func (s *census) countPolicy(np *networkPolicy) {
	ns, applied := np.Meta.Namespace, &np.Spec.PodSelector
	s.applied[ns+"|"+applied.canonical()] = true
	for _, p := range s.podsOf[ns] {
		if applied.matches(p.Meta.Labels) {
			s.stats.AppliedPairs++
			s.appliedDigest += pairHash(np.Meta.path(), p.Meta.path())
		}
	}
	for _, r := range np.Spec.Ingress {
		s.countRule(ns, r.From)
	}
	for _, r := range np.Spec.Egress {
		s.countRule(ns, r.To)
	}
}

func (s *census) countRule(ns string, peers []peer) {
	s.stats.Rules++
	for _, p := range peers {
		if p.IPBlock != nil {
			s.countBlock(p.IPBlock)
			continue
		}
		s.countPeer(ns, p)
	}
}

func (s *census) countBlock(b *ipBlock) {
	s.stats.IPBlocks++
	s.stats.Excepts += len(b.Except)
	n, v4 := coverSize(b)
	if v4 {
		s.stats.MinimalPrefixesV4 += n
	} else {
		s.stats.MinimalPrefixesV6 += n
	}
}

// countPeer counts the pods of a peer in a policy of the namespace ns. Those of a peer
// that was met before are not looked for again.
func (s *census) countPeer(ns string, p peer) {
	key := "ns:" + ns + "|" + p.PodSelector.canonical()
	if p.NamespaceSelector != nil {
		key = "sel:" + p.NamespaceSelector.canonical() + "|" + p.PodSelector.canonical()
	}
	n, known := s.peers[key]
	if !known {
		n = s.countPeerPods(key, ns, p)
		s.peers[key] = n
		s.stats.PeerPairsUnique += n
		s.stats.MaxPeerSet = max(s.stats.MaxPeerSet, n)
	}
	s.stats.PeersSel++
	s.stats.PeerPairsExpanded += n
}

func (s *census) countPeerPods(key, ns string, p peer) int {
	n := 0
	for _, x := range s.cluster.namespaces {
		selected := x.Meta.Name == ns
		if p.NamespaceSelector != nil {
			selected = p.NamespaceSelector.matches(x.Meta.Labels)
		}
		if !selected {
			continue
		}
		for _, q := range s.podsOf[x.Meta.Name] {
			if p.PodSelector == nil || p.PodSelector.matches(q.Meta.Labels) {
				n++
				s.peerDigest += pairHash(key, q.Meta.path())
			}
		}
	}
	return n
}

// pairHash hashes a pair for a digest. The hash of FNV alone would not do: of texts
// that differ in few places, its sums cancel each other out.
func pairHash(a, b string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%s", a, b) // a hash never fails
	return finalise(h.Sum64())
}
