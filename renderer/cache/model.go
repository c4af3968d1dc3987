package cache

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// pod is the staged state of a local pod.
type pod struct {
	id        api.PodID
	cfg       renderer.PodConfig
	addrs     []*address // sorted by address
	own, opp  *list      // nil when unrestricted
	built     *block     // nil before the first Compute
	entry     *entry     // nil when the pod has no table
	key       string     // of equal tables, see combiner.key
	additions *additions // nil before the first Compute, and without a Bound
}

// address is an address of at least one local pod.
type address struct {
	addr   netip.Addr
	slot   int // index of the verdicts that lists hold about it
	owners []*pod
}

// list is one rule list, shared by all pods with equal rules, and its verdicts about local peer
// addresses.
type list struct {
	digest renderer.Digest
	rules  []api.ContivRule
	id     uint32             // unique in the cache
	pods   map[api.PodID]*pod // pods that have the list
	ofAll  *renderer.RuleList // of an opposite list: the rules, with the origins for all of its pods

	// The rules, indexed by their peer side.
	always   []uint32
	bySet    map[api.SetID][]uint32
	byPrefix bart.Table[[]uint32]

	verdicts   []verdict           // by address slot
	byMatches  map[matches]verdict // gives equal results one class, by which blocks are shared
	classes    uint32              // distinct results so far
	isOpposite bool
	index      int       // of an opposite list: position in combiner.opposites
	podsSet    api.SetID // of an opposite list: the set of its pods

	listShare
}

// listShare is what a list takes of the share of its namespaces.
type listShare struct {
	origins *renderer.RuleList // of one of its pods
	entries int
	sized   bool // entries is known
	demand
	closed  string // why everything is denied instead; "" when it is not
	tooLong bool   // it is closed for good and not indexed
	named   map[*renderer.RuleList][]api.Origin
}

// block is the content of a local table, built for one pod.
type block struct {
	rules   []api.ContivRule // nil when the pod needs no table
	origins [][]api.Origin
	digest  renderer.Digest
}

// entry is a staged local table with its pods.
type entry struct {
	digest renderer.Digest
	rules  []api.ContivRule
	sets   []api.SetID
	pods   map[api.PodID]*pod
	table  *Table // nil when it must be rebuilt
}
